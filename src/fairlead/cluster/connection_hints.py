"""What may help where a server cannot be reached over HTTP, by what went wrong."""

_NO_CERTIFICATE = "; name its certificate with --ca FILE, or once and for all with `fairlead login`"
_OTHER_CERTIFICATE = "; --ca has to be the certificate of that server, for this host name"
_NO_TLS = "; if it speaks no TLS, its address begins with http://"
_MAYBE_TLS = " If it speaks TLS, its address begins with https://"


def refused_hint(problem: Exception, ca: str | None) -> str:
    """Return the end of a sentence about a connection that was not made; "" = nothing is known that helps.
    ca: the file of certificates that are trusted, None = those of the system."""
    if "CERTIFICATE_VERIFY_FAILED" in str(problem):
        return _OTHER_CERTIFICATE if ca else _NO_CERTIFICATE
    return _NO_TLS if "WRONG_VERSION_NUMBER" in str(problem) else ""


def silence_hint(url: str) -> str:
    """Return a sentence about a server at this address that takes a request and says nothing."""
    return "" if url.startswith("https:") else _MAYBE_TLS
