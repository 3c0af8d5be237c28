"""Images as other libraries hand them out, with these libraries themselves."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image

import acclimate
from acclimate.data import ImageSource, open_images
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.models.libraries import import_torchvision

IMAGES, LABELS = (each[:30] for each in digits("held-out"))

needs_torchvision = pytest.mark.skipif(not find_spec("torchvision"), reason="needs torchvision")


@pytest.fixture
def folder(tmp_path):
    for number, (image, label) in enumerate(zip(IMAGES, LABELS, strict=True)):
        path = tmp_path / "images" / str(label) / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return tmp_path / "images"


@pytest.fixture
def paths(folder):
    """In the order of the images, not of the folders."""
    return sorted(folder.rglob("*.png"), key=lambda path: path.name)


def same_images(source: ImageSource) -> bool:
    return bool((source.read(torch.arange(len(source)))[:, 0].numpy() == IMAGES).all())


def test_a_list_of_paths(paths):
    source = open_images(paths, preprocessing=PREPROCESSING)
    assert same_images(source)
    assert source.names == [str(path) for path in paths]
    assert same_images(open_images([str(path) for path in paths], preprocessing=PREPROCESSING))


def test_a_list_of_paths_and_labels(paths):
    pairs = [(path, int(path.parent.name)) for path in paths]
    source = open_images(pairs, preprocessing=PREPROCESSING)
    assert same_images(source)
    assert source.labels.tolist() == LABELS.tolist()
    some = [(paths[0], 3), paths[1], (paths[2], None)]
    assert open_images(some, preprocessing=PREPROCESSING).labels.tolist() == [3, -1, -1]


def test_of_a_list_of_paths_what_is_missing_is_left_out(paths):
    with pytest.warns(AcclimateWarning, match=r"1 of 31 images .*gone.png: No such file"):
        source = open_images([*paths, "gone.png"], preprocessing=PREPROCESSING)
    assert same_images(source)


@needs_torchvision
def test_a_data_set_of_torchvision(folder):
    datasets = import_torchvision().datasets
    source = open_images(datasets.ImageFolder(str(folder)), preprocessing=PREPROCESSING)
    assert sorted(source.labels.tolist()) == sorted(LABELS.tolist())
    with pytest.raises(AcclimateError, match="preprocessing"):
        open_images(datasets.ImageFolder(str(folder)))


@needs_torchvision
def test_a_data_set_of_torchvision_with_its_own_transform_is_model_input(folder):
    torchvision = import_torchvision()
    from torchvision import transforms

    scaled = transforms.Compose(
        [transforms.Grayscale(), transforms.ToTensor(), transforms.Normalize([0.3], [0.37])]
    )
    source = open_images(torchvision.datasets.ImageFolder(str(folder), transform=scaled))
    assert source.read(torch.tensor([0])).dtype == torch.float32
    assert source.preprocessing is None


@pytest.fixture
def shard(tmp_path, paths):
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "shard.tar")) as out:
        for number, path in enumerate(paths):
            label = int(path.parent.name)
            out.write({"__key__": f"{number:02}", "png": path.read_bytes(), "cls": label})
    return tmp_path / "shard.tar"


@pytest.mark.parametrize(
    "steps",
    [lambda data: data, lambda data: data.decode("pil"),
     lambda data: data.decode("pil").to_tuple("png", "cls")],
    ids=["files", "decoded", "tuples"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_a_pipeline_of_webdataset(shard, steps):
    webdataset = pytest.importorskip("webdataset")
    pipeline = steps(webdataset.WebDataset(str(shard), shardshuffle=False))
    with pytest.warns(AcclimateWarning, match="read only once"):
        source = open_images(pipeline, preprocessing=PREPROCESSING)
    assert same_images(source)
    assert source.labels.tolist() == LABELS.tolist()


def test_shards_that_webdataset_wrote_are_read_without_it(shard):
    source = open_images(shard, preprocessing=PREPROCESSING)
    assert same_images(source)
    assert source.labels.tolist() == LABELS.tolist()


@pytest.fixture
def hugging_face(paths):
    datasets = pytest.importorskip("datasets")
    columns = {"image": list(map(str, paths)), "label": LABELS.tolist()}
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


def test_a_data_set_of_hugging_face(hugging_face):
    source = open_images(hugging_face, preprocessing=PREPROCESSING)
    assert same_images(source)
    assert source.labels.tolist() == LABELS.tolist()


def test_a_streamed_data_set_of_hugging_face(hugging_face):
    with pytest.warns(AcclimateWarning, match="read only once"):
        source = open_images(hugging_face.to_iterable_dataset(), preprocessing=PREPROCESSING)
    assert same_images(source)


def test_of_several_splits_one_has_to_be_chosen(hugging_face):
    splits = pytest.importorskip("datasets").DatasetDict(train=hugging_face, test=hugging_face)
    with pytest.raises(AcclimateError, match=r"several by name \(train, test\); choose one"):
        open_images(splits, preprocessing=PREPROCESSING)


@pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers")
def test_a_classifier_of_transformers_with_its_image_processor(hugging_face):
    if find_spec("torchvision"):
        import_torchvision()
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(
        num_channels=3, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=10
    )
    model = transformers.ResNetForImageClassification(config).eval()
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    preprocessing = acclimate.models.preprocessing_from_hf(processor.to_dict())
    result = acclimate.adapt(model, hugging_face, "bn", preprocessing=preprocessing, progress=False)
    assert len(result.predictions) == 30
    images = [image.convert("RGB") for image in hugging_face["image"]]
    pixels = processor(images, return_tensors="pt")["pixel_values"]
    ours = open_images(hugging_face, preprocessing=preprocessing).read(torch.arange(30))
    scaled = (ours / 255 - 0.5) / 0.5
    assert float((scaled - pixels).abs().mean()) < 0.02


def test_metrics_of_torchmetrics_score_a_result_and_a_stream():
    if find_spec("torchvision"):
        import_torchvision()
    torchmetrics = pytest.importorskip("torchmetrics")
    model = acclimate.models.load("acclimate:digits")
    images, labels = (each[:200] for each in digits("held-out", shifted=True))
    accuracy = torchmetrics.classification.MulticlassAccuracy(10, average="micro")
    result = acclimate.adapt(model, images, "bn", labels=labels, progress=False)
    found = float(accuracy(result.predictions, torch.tensor(labels)))
    assert found == pytest.approx(1 - result.error_after / 100, abs=1e-6)
    accuracy.reset()
    stream = acclimate.Stream(model, "bn")
    for part in np.array_split(np.arange(200), 4):
        accuracy.update(stream(images[part]), torch.tensor(labels[part]))
    assert float(accuracy.compute()) > 0.8
