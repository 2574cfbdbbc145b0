"""The training side: what runs inside a job's own processes. Imports nothing but the standard
library, of Python 3.9 to 3.14: it runs in environments that are the user's."""
