"""The operations a transaction can carry, one file each."""
