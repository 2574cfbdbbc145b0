"""The data that must outlive the server: SQLite, checksums, backups, logs and samples."""
