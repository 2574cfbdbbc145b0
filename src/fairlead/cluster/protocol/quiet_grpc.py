"""gRPC, imported so that its core prints nothing on our standard error.

Its core logs every failed handshake and refused connection there, and reads how much it shall say when it
is imported. What matters is in the errors that it raises, so it is told to say nothing; the setting is taken
back, since the processes of jobs inherit our environment.
"""

import os

_SETTING = "GRPC_VERBOSITY"
_given = os.environ.get(_SETTING)
os.environ.setdefault(_SETTING, "NONE")

import grpc as grpc  # noqa: E402
import grpc.aio  # noqa: E402, F401

if _given is None:
    del os.environ[_SETTING]
