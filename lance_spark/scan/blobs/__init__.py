"""The bytes of blobs, loaded after the rows of a scan are known."""
