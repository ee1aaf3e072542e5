"""Tortures: processes, disks and clients that fail while a host works, and what must then hold.

Each torture performs operations, makes something fail under them, opens what is left, and
holds it against a plain model. What was acknowledged must be there, what was refused must
not, and what nobody knows may be either, but whole. Only the library's public face and
the files on the disk are looked at. :mod:`.model` says what must be shown, :mod:`.disk`
what lies there, :mod:`.oracle` whether that is allowed.
"""
