"""An append-only file that a power cut tore, anywhere in the writes of a script: all of them are kept, or none."""

import os
import shutil

import pytest
import redis

from broker.errors import Unavailable
from broker.store.server import PrivateRedis
from broker.store.torn import cut_torn, is_torn

SCRIPT = "for i = 1, 3 do redis.call('HSET', KEYS[1], ARGV[1] .. i, 'some value') end"
MULTI = b"*1\r\n$5\r\nMULTI\r\n"


def files(folder):
    return sorted((folder / "appendonlydir").glob("*.incr.aof"))


def write(folder, *names):
    """Start a server on the folder, run the script once for each name, and stop it; what its hash then holds."""
    with PrivateRedis(folder) as server, redis.from_url(server.url) as client:
        for name in names:
            client.eval(SCRIPT, 1, "hash", name)
        return sorted(field.decode() for field in client.hkeys("hash"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "data"
    write(folder, "before", "torn")
    return folder


def torn(written, tmp_path, size):
    folder = tmp_path / f"torn-{size}"
    shutil.copytree(written, folder)
    os.truncate(files(folder)[-1], size)
    return folder


def test_half_of_a_script_never_comes_back(written, tmp_path):
    told = files(written)[-1].read_bytes()
    begun = told.rindex(MULTI)
    # In its first command, between two, in the last one, and before its end.
    for size in (
        begun + 20,
        begun + len(MULTI) + 3,
        (begun + len(told)) // 2,
        len(told) - 14,
        len(told) - 3,
    ):
        folder = torn(written, tmp_path, size)
        assert write(folder, "after") == [
            "after1",
            "after2",
            "after3",
            "before1",
            "before2",
            "before3",
        ]
        assert write(folder) == ["after1", "after2", "after3", "before1", "before2", "before3"]


def test_a_whole_file_keeps_every_byte(written, tmp_path):
    size = files(written)[-1].stat().st_size
    folder = torn(written, tmp_path, size)
    assert cut_torn(shutil.which("redis-server"), folder) == 0
    assert files(folder)[-1].stat().st_size == size
    assert cut_torn(shutil.which("redis-server"), tmp_path / "nothing") == 0


def test_a_file_that_is_damaged_elsewhere_is_refused_and_left_as_it_is(written, tmp_path):
    folder = torn(written, tmp_path, files(written)[-1].stat().st_size)
    [file] = files(folder)
    told = file.read_bytes().replace(b"$10\r\n", b"$xx\r\n", 1)
    file.write_bytes(told)
    with pytest.raises(Unavailable, match="ended at once"):
        PrivateRedis(folder).start()
    assert file.read_bytes() == told


@pytest.mark.parametrize("size", range(60))
def test_every_beginning_of_commands_is_torn(size):
    told = b"*1\r\n$5\r\nMULTI\r\n#TS:1700000000\r\n*2\r\n$3\r\nDEL\r\n$2\r\n\r\n\r\n"
    assert is_torn(told[:size])


@pytest.mark.parametrize(
    "told",
    [
        b"*1\r\n$5\r\nMULTIxx*1\r\n",
        b"*x\r\n",
        b"$5\r\nMULTI\r\n",
        b"*2\r\n$3\r\nDEL\r\n*1\r\n$1\r\na\r\n",
        bytes(64),
        bytes(8),
    ],
)
def test_what_is_no_command_is_damaged(told):
    assert not is_torn(told)
