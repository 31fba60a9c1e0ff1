"""`verify`: whether files are what was written."""

import shutil

import t5x_lite


def test_a_run_whose_last_checkpoint_is_damaged(run, make_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(make_run("bert"), folder)
    shutil.copytree(folder / "checkpoints" / "0", folder / "checkpoints" / "7")
    assert run("verify", folder)[0] == 0
    manifest = folder / "checkpoints" / "7" / "params" / "manifest.ocdbt"
    manifest.write_bytes(bytes(manifest.stat().st_size))
    status, out, err = run("verify", folder)
    assert status == 2
    assert "7: params/manifest.ocdbt is not what was written" in out
    assert "checkpoints/0: as it was written" in out
    assert f"{folder / 'checkpoints' / '7'} is damaged: params/manifest.ocdbt" in err
    assert f"use {folder / 'checkpoints' / '0'}, the last one that is not" in err
    assert run("verify", folder / "checkpoints" / "0")[0] == 0


def test_an_exported_folder(run, make_run, tmp_path):
    t5x_lite.load(make_run("bert")).export(tmp_path / "hf")
    assert run("verify", tmp_path / "hf")[0] == 0
    weights = tmp_path / "hf" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    for command in (("verify", tmp_path / "hf"), ("fill_mask", tmp_path / "hf", "a [MASK]")):
        status, _, err = run(*command)
        assert status == 2 and "Traceback" not in err
        assert "damaged" in err and "hf" in err


def test_what_is_no_folder(run, tmp_path):
    assert "is not a folder" in run("verify", tmp_path / "absent")[2]
    assert run("verify", tmp_path)[0] == 2, "nothing in it has a checksum"
