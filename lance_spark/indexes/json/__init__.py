"""JSON indexes: of the values at one path of documents."""
