"""A consumer of KV events as a router has one: pyzmq for the sockets, msgspec for the payloads.

Subscribes, loses some batches on purpose, asks the replay socket for them, and keeps a mirror of the cached blocks. Also
encodes each batch again, which must give the same bytes. Prints one JSON object with what it saw. Arguments: endpoint,
replay endpoint, topic, number of batches to come, whether token ids are emitted.
"""

import json
import sys
from typing import Optional, Union

import msgspec
import zmq

TIMEOUT_MS = 30_000
LOST = range(5, 12)


class BlockStored(msgspec.Struct, tag=True, omit_defaults=True, forbid_unknown_fields=True):
    block_hashes: list[int]
    parent_block_hash: Optional[int]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str] = None


class BlockRemoved(msgspec.Struct, tag=True, omit_defaults=True, forbid_unknown_fields=True):
    block_hashes: list[int]
    medium: Optional[str] = None


class AllBlocksCleared(msgspec.Struct, tag=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class Batch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ts: float
    events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
    attn_dp_rank: Optional[int] = None


class Mirror:
    def __init__(self, with_tokens: bool) -> None:
        self.blocks: set[int] = set()
        self.next_sequence = 0
        self.last_ts = 0.0
        self.with_tokens = with_tokens
        self.decoder = msgspec.msgpack.Decoder(Batch)

    def apply(self, sequence: int, payload: bytes) -> None:
        assert sequence == self.next_sequence, f"batch {sequence} came, expected {self.next_sequence}"
        self.next_sequence += 1
        batch = self.decoder.decode(payload)
        assert batch.ts >= self.last_ts and batch.attn_dp_rank == 0 and batch.events, batch
        self.last_ts = batch.ts
        # The library that the engine encodes with gives the same bytes.
        assert msgspec.msgpack.encode(batch) == payload, f"batch {sequence} is encoded otherwise"
        for event in batch.events:
            self.apply_event(event)

    def apply_event(self, event: Union[BlockStored, BlockRemoved, AllBlocksCleared]) -> None:
        if isinstance(event, AllBlocksCleared):
            self.blocks.clear()
        elif isinstance(event, BlockRemoved):
            assert event.medium == "GPU"
            for block in event.block_hashes:
                self.blocks.remove(block)
        else:
            assert event.medium == "GPU" and event.lora_id is None
            assert event.parent_block_hash is None or event.parent_block_hash in self.blocks
            expected = len(event.block_hashes) * event.block_size if self.with_tokens else 0
            assert len(event.token_ids) == expected, f"{len(event.token_ids)} token ids, expected {expected}"
            assert not self.blocks.intersection(event.block_hashes)
            self.blocks.update(event.block_hashes)


def replay(context: zmq.Context, endpoint: str, mirror: Mirror, end: int) -> int:
    """Applies the batches up to `end` from the replay socket, and says how many it sent in all."""
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVTIMEO, TIMEOUT_MS)
    socket.connect(endpoint)
    socket.send_multipart([b"", mirror.next_sequence.to_bytes(8, "big")])
    answers = 0
    while True:
        empty, number, payload = socket.recv_multipart()
        assert empty == b""
        sequence = int.from_bytes(number, "big", signed=True)
        if sequence == -1:
            assert payload == b""
            socket.close(linger=0)
            return answers
        answers += 1
        if sequence < end:
            mirror.apply(sequence, payload)


def main() -> None:
    endpoint, replay_endpoint, topic, batches, with_tokens = sys.argv[1:]
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVTIMEO, TIMEOUT_MS)
    socket.setsockopt_string(zmq.SUBSCRIBE, topic)
    socket.connect(endpoint)
    mirror = Mirror(with_tokens == "true")
    gaps = replayed = 0
    while mirror.next_sequence < int(batches):
        heard, number, payload = socket.recv_multipart()
        assert heard == topic.encode() and len(number) == 8
        sequence = int.from_bytes(number, "big")
        if sequence in LOST:
            continue
        if sequence > mirror.next_sequence:
            gaps += 1
            replayed += replay(context, replay_endpoint, mirror, sequence)
        mirror.apply(sequence, payload)
    print(json.dumps({"gaps": gaps, "replayed": replayed, "blocks": sorted(mirror.blocks)}))
    socket.close(linger=0)
    context.term()


main()
