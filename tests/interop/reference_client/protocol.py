"""The messages of proto/cairn/v1 as dictionaries, and the frames of a session.

A table instead of generated code, so that gRPC and NumPy are all that is needed, in any version. Only what a client
uses is here; a test holds the numbers and types against the .proto files.
"""

import struct

VERSION = 13  # kProtocolVersion in common/net/grpc/grpc_util.h
SERVICE = "cairn.v1.ParameterServer"
MAX_PAYLOAD = 1 << 20  # bytes

# Message -> field number -> (name, type). Types: int, uint, fixed64, float, double, string, bytes, a message,
# map (string -> double); a list of one of them is a repeated field.
MESSAGES = {
    "ConnectRequest": {1: ("protocol", "int"), 2: ("cluster_hash", "uint"), 3: ("server", "int"), 4: ("client", "string")},
    "ConnectResponse": {1: ("protocol", "int"), 2: ("incarnation", "uint"), 6: ("state", "int"), 7: ("failure", "string"),
                        9: ("job", "Job"), 10: ("layout", "uint"), 11: ("slices", ["VariableSlice"]), 13: ("version", "int"),
                        17: ("sequences", "int")},
    "CreateRequest": {1: ("job", "Job"), 2: ("slices", ["VariableSlice"]), 4: ("seal_key", "bytes")},
    "CreateResponse": {1: ("layout", "uint")},
    "WaitRequest": {1: ("condition", "int"), 2: ("wait_seconds", "double"), 3: ("worker", "int")},
    "WaitResponse": {1: ("holds", "int"), 2: ("missing", "string")},
    "JoinRequest": {1: ("worker", "int"), 2: ("task", "string"), 3: ("incarnation", "uint"),
                    4: ("incarnation_seal", "bytes"), 5: ("process", "Process")},
    "JoinResponse": {1: ("incarnation", "uint"), 4: ("incarnation_seal", "bytes")},
    "Process": {1: ("id", "fixed64"), 2: ("host", "string"), 3: ("pid", "int")},
    "HeartbeatRequest": {1: ("worker", "int"), 2: ("incarnation", "uint"), 3: ("step", "int")},
    "HeartbeatResponse": {1: ("state", "int"), 2: ("failure", "string"), 5: ("waiting_for", "string")},
    "LeaveRequest": {1: ("worker", "int"), 2: ("incarnation", "uint"), 3: ("reason", "int"), 4: ("message", "string")},
    "LeaveResponse": {},
    "PlaceMarkerRequest": {1: ("token", "string")},
    "PlaceMarkerResponse": {},
    "FinishRequest": {},
    "FinishResponse": {},
    "Job": {1: ("run_id", "string"), 2: ("mode", "int"), 3: ("model_sha256", "string"), 4: ("workers", ["string"]),
            5: ("replicas_to_aggregate", "int"), 6: ("max_staleness", "int"), 8: ("optimizer", "OptimizerConfig"),
            12: ("lease_seconds", "double"), 13: ("servers", ["string"])},
    "OptimizerConfig": {1: ("name", "string"), 2: ("hyperparameters", "map"),
                        3: ("learning_rate_schedule", "LearningRateSchedule")},
    "LearningRateSchedule": {1: ("name", "string"), 2: ("numbers", "map"), 3: ("boundaries", ["double"]),
                             4: ("values", ["double"])},
    "VariableSlice": {1: ("name", "string"), 2: ("shape", ["int"]), 3: ("row_begin", "int"), 4: ("row_end", "int"),
                      5: ("offset", "int")},
    "ClientHeader": {1: ("request_id", "uint"), 2: ("push", "PushBegin"), 3: ("write", "WriteBegin"),
                     4: ("read", "ReadBegin"), 5: ("chunk", "Chunk"), 6: ("end", "End")},
    "PushBegin": {1: ("layout", "uint"), 2: ("worker", "int"), 3: ("incarnation", "uint"), 4: ("step", "int"),
                  5: ("base_version", "int"), 6: ("examples", "int"), 7: ("read_values", "int"), 8: ("position", "int")},
    "WriteBegin": {1: ("layout", "uint"), 2: ("initialise", "int")},
    "ReadBegin": {1: ("layout", "uint"), 2: ("marker", "string")},
    "Chunk": {1: ("offset", "int")},
    "End": {},
    "ServerHeader": {1: ("request_id", "uint"), 2: ("chunk", "Chunk"), 3: ("done", "Done")},
    "Done": {1: ("code", "int"), 2: ("message", "string"), 3: ("version", "int"), 4: ("outcome", "int"),
             5: ("duplicate", "int"), 6: ("staleness", "int"), 7: ("has_values", "int"), 8: ("finished", "int")},
}
_MAP_ENTRY = {1: ("key", "string"), 2: ("value", "double")}
_FIXED = {"double": (1, "<d"), "float": (5, "<f"), "fixed64": (1, "<Q")}


def _varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _encode_field(number, kind, value):
    if kind in _FIXED:
        wire, code = _FIXED[kind]
        return _varint(number << 3 | wire) + struct.pack(code, value)
    if kind in ("int", "uint"):
        return _varint(number << 3) + _varint(int(value))
    data = value if kind == "bytes" else value.encode() if kind == "string" else encode(kind, value)
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def encode(message, values):
    """Returns the bytes of a message; fields that are missing in `values` are left unset."""
    fields = _MAP_ENTRY if message == "entry" else MESSAGES[message]
    parts = []
    for number, (name, kind) in fields.items():
        if name not in values:
            continue
        value = values[name]
        if kind == "map":
            parts += [_encode_field(number, "entry", {"key": k, "value": v}) for k, v in value.items()]
        elif isinstance(kind, list):
            parts += [_encode_field(number, kind[0], item) for item in value]
        else:
            parts.append(_encode_field(number, kind, value))
    return b"".join(parts)


def _default(kind):
    if isinstance(kind, list):
        return []
    return {"map": {}, "string": "", "bytes": b"", "double": 0.0, "float": 0.0, "int": 0, "uint": 0,
            "fixed64": 0}.get(kind)


def _decode_value(kind, wire, data):
    if wire == 0:
        return data - (1 << 64) if kind == "int" and data >> 63 else data
    if kind in _FIXED:
        return struct.unpack(_FIXED[kind][1], data)[0]
    if kind == "bytes":
        return bytes(data)
    return bytes(data).decode() if kind == "string" else decode(kind, data)


def decode(message, data):
    """Returns every known field of a message. Unset fields have their default; unset messages are None."""
    fields = _MAP_ENTRY if message == "entry" else MESSAGES[message]
    values = {name: _default(kind) for name, kind in fields.values()}
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == 0:
            field, at = _read_varint(data, at)
        else:
            size, at = _read_varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            field, at = data[at:at + size], at + size
        name, kind = fields.get(tag >> 3, (None, None))
        if name is None:
            continue
        if kind == "map":
            entry = decode("entry", field)
            values[name][entry["key"]] = entry["value"]
        elif not isinstance(kind, list):
            values[name] = _decode_value(kind, wire, field)
        elif wire == 2 and kind[0] in _FIXED:  # packed
            values[name] += [number for number, in struct.iter_unpack(_FIXED[kind[0]][1], field)]
        elif wire == 2 and kind[0] in ("int", "uint"):  # packed
            inner = 0
            while inner < len(field):
                value, inner = _read_varint(field, inner)
                values[name].append(_decode_value(kind[0], 0, value))
        else:
            values[name].append(_decode_value(kind[0], wire, field))
    return values


def frame(header, payload=b""):
    """message { ClientHeader header = 1; bytes payload = 2; }"""
    data = encode("ClientHeader", header)
    parts = [b"\x0a", _varint(len(data)), data]
    if len(payload):
        parts += [b"\x12", _varint(len(payload)), payload]
    return b"".join(parts)


def unframe(data):
    """Returns the ServerHeader and the payload, a view of `data`, of a received frame."""
    view = memoryview(data)
    size, at = _read_varint(view, 1)
    header, at = decode("ServerHeader", view[at:at + size]), at + size
    if at == len(view):
        return header, view[:0]
    size, at = _read_varint(view, at + 1)
    return header, view[at:at + size]
