"""Other clients of Cloud Storage work with the emulated one: gcsfs, TensorStore, Orbax."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.emulator.storage_rig import BUCKET, official, running
from tpujob.emulator.client import storage_variables

Script = Callable[[str], None]


@pytest.fixture
def run_script(tmp_path: Path) -> Iterator[Script]:
    """Run Python with the variables of an emulated host. These libraries keep threads and event loops, so they get a
    process of their own."""
    with running(tmp_path / "storage") as server, official(server.url):
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            **storage_variables(server.url),
            "JAX_PLATFORMS": "cpu",
            "BUCKET": BUCKET,
        }

        def run(code: str) -> None:
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(code)],
                env=env,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=150,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr

        yield run


def test_gcsfs_writes_reads_lists_moves_and_removes(run_script: Script) -> None:
    run_script("""
        import os, fsspec
        root = "gs://" + os.environ["BUCKET"]
        fs = fsspec.filesystem("gs", token="anon", use_listings_cache=False)
        data = os.urandom(1 << 20) * 11  # more than one piece of its resumable uploads
        for name, content in (("small", b"hello"), ("folder/large", data), ("empty", b"")):
            fs.pipe(f"{root}/{name}", content)
            assert fs.cat(f"{root}/{name}") == content, name
        with fs.open(f"{root}/streamed", "wb", block_size=1 << 20) as f:
            for start in range(0, len(data), 300_000):
                f.write(data[start:start + 300_000])
        with fs.open(f"{root}/streamed", "rb") as f:
            f.seek(5_000_000)
            assert f.read(100) == data[5_000_000:5_000_100]
        names = sorted(path.partition("/")[2] for path in fs.find(root))
        assert names == ["empty", "folder/large", "small", "streamed"], names
        assert sorted(p.partition("/")[2] for p in fs.ls(root)) == ["empty", "folder", "small", "streamed"]
        assert fs.isdir(f"{root}/folder") and not fs.exists(f"{root}/none")
        fs.mv(f"{root}/small", f"{root}/moved")
        fs.cp(f"{root}/moved", f"{root}/copied")
        assert fs.cat([f"{root}/moved", f"{root}/copied"]) and not fs.exists(f"{root}/small")
        fs.rm(f"{root}/folder", recursive=True)
        assert not fs.exists(f"{root}/folder")
        assert fs.info(f"{root}/streamed")["size"] == len(data)
    """)


def test_tensorstore_writes_reads_and_removes_only_what_is_meant(run_script: Script) -> None:
    run_script("""
        import os
        import numpy as np
        import tensorstore as ts
        def spec(path):
            return {"driver": "zarr3", "kvstore": {"driver": "gcs", "bucket": os.environ["BUCKET"], "path": path}}
        array = np.arange(1_000_000, dtype=np.float32).reshape(1000, 1000)
        for path in ("one/", "two/"):
            store = ts.open(spec(path), create=True, dtype=ts.float32, shape=array.shape,
                            chunk_layout=ts.ChunkLayout(chunk_shape=[250, 250])).result()
            store.write(array).result()
        assert (ts.open(spec("one/")).result()[10:20, 5].read().result() == array[10:20, 5]).all()
        kv = ts.KvStore.open(spec("")["kvstore"]).result()
        kv.delete_range(ts.KvStore.KeyRange("one/", "one0")).result()
        assert all(key.startswith(b"two/") for key in kv.list().result())
        assert (ts.open(spec("two/")).result().read().result() == array).all()
        first = kv.write("cas", b"1").result()
        assert kv.write("cas", b"2", if_equal=first.generation).result().generation
        stale = kv.write("cas", b"3", if_equal=first.generation).result()
        assert kv.read("cas").result().value == b"2", stale
    """)


def test_orbax_saves_and_restores_a_checkpoint(run_script: Script) -> None:
    run_script("""
        import os
        import fsspec
        import jax, jax.numpy as jnp
        import orbax.checkpoint as ocp
        root = f"gs://{os.environ['BUCKET']}/jobs/000042/checkpoints"
        tree = {"w": jnp.arange(4096.0).reshape(64, 64), "b": jnp.ones(3), "step": jnp.int32(7)}
        options = ocp.CheckpointManagerOptions(max_to_keep=2)
        with ocp.CheckpointManager(root, options=options) as manager:
            for step in (1, 2, 3):
                manager.save(step, args=ocp.args.StandardSave(tree))
            manager.wait_until_finished()
            assert manager.all_steps() == [2, 3], manager.all_steps()
        with ocp.CheckpointManager(root, options=options) as manager:
            assert manager.latest_step() == 3
            like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)
            found = manager.restore(3, args=ocp.args.StandardRestore(like))
        assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), tree, found)))
        names = {os.path.basename(name) for name in fsspec.filesystem("gs", token="anon").ls(root)}
        assert {"2", "3"} <= names, names
        assert "1" not in names, "only two were to be kept"
    """)
