"""Listing and counting class folders, before anything is read."""

from __future__ import annotations

import pytest

from acclimate.data.benchmarks import open_dataset
from acclimate.data.benchmarks.imagenet import subset_classes
from acclimate.data.files import FolderSource
from acclimate.data.labels import imagenet_classes
from acclimate.errors import AcclimateError, AcclimateWarning
from benchmarks_trees import TINY, class_folders, write_image


def test_a_link_to_nothing_counts_and_is_named_when_read(tmp_path):
    ids = imagenet_classes().ids or ()
    names = [ids[index] for index in subset_classes("imagenet-r")]
    class_folders(tmp_path, names)
    (tmp_path / names[0] / "lost.JPEG").symlink_to(tmp_path / "nowhere.JPEG")
    with pytest.warns(AcclimateWarning) as caught:
        source = open_dataset(
            "imagenet-r", tmp_path, preprocessing=TINY, progress=False, incomplete=True
        )
    assert len(source) == 200
    texts = [str(warning.message) for warning in caught]
    assert any("found 201" in text for text in texts)
    assert any(f"{names[0]}/lost.JPEG: No such file" in text for text in texts)


def test_a_source_reads_the_files_it_is_given_in_their_order(tmp_path):
    for name in ("a.JPEG", "b.JPEG", "c.JPEG"):
        write_image(tmp_path / name)
    options = {"preprocessing": TINY, "progress": False}
    source = FolderSource(tmp_path, names=["c.JPEG", "a.JPEG"], labels=[5, 1], **options)
    assert source.names == ["c.JPEG", "a.JPEG"]
    assert source.labels is not None
    assert source.labels.tolist() == [5, 1]
    with pytest.raises(AcclimateError, match="at least one image"):
        FolderSource(tmp_path, names=[], **options)
