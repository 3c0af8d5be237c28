"""The callback for Lightning, with Lightning itself."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from acclimate import Stream
from acclimate.data.digits import digits
from acclimate.errors import AcclimateError
from acclimate.models.networks.digits import load_digits_model

if find_spec("lightning") is None:
    pytest.skip("needs pip install 'acclimate[lightning]'", allow_module_level=True)

from acclimate.lightning import AdaptAtTest, lightning


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = load_digits_model().model
        self.wrong = self.seen = 0

    def test_step(self, batch, index):
        images, labels = batch
        self.wrong += int((self.net(images).argmax(1) != labels).sum())
        self.seen += len(labels)
        if self.seen > 350:
            raise RuntimeError("broken on purpose")

    def predict_step(self, batch, index):
        return self.net(batch[0]).argmax(1)


@pytest.fixture
def loader():
    images, labels = digits("held-out", shifted=True)
    scaled = (torch.tensor(images[:, None]) / 255 - 0.3) / 0.37
    return DataLoader(TensorDataset(scaled, torch.tensor(labels)), batch_size=64)


def trainer(*callbacks):
    return lightning.Trainer(
        accelerator="cpu", devices=1, logger=False, callbacks=[*callbacks], limit_test_batches=5,
        limit_predict_batches=5, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False,
    )  # fmt: skip


def adapting(**options):
    return AdaptAtTest("ent", network="net", **options)


def test_a_test_predicts_while_it_adapts_and_leaves_the_module_as_it_was(loader):
    plain, adapted = Classifier(), Classifier()
    before = {name: tensor.clone() for name, tensor in adapted.state_dict().items()}
    trainer().test(plain, loader, verbose=False)
    callback = adapting()
    trainer(callback).test(adapted, loader, verbose=False)
    assert adapted.seen == plain.seen == 320
    assert adapted.wrong < 0.3 * plain.wrong
    assert not isinstance(adapted.net, Stream)
    after = adapted.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert callback.stream.learner.steps == 5


def test_predictions_are_those_of_a_stream(loader):
    found = torch.cat(trainer(adapting(speed="exact")).predict(Classifier(), loader))
    stream = Stream(load_digits_model().model, "ent", speed="exact")
    batches = [images for images, _ in loader][:5]
    assert torch.equal(found, torch.cat([stream(images).argmax(1) for images in batches]))


def test_after_an_error_the_module_has_its_own_network(loader):
    module = Classifier()
    module.seen = 300
    with pytest.raises(RuntimeError, match="on purpose"):
        trainer(adapting()).test(module, loader, verbose=False)
    assert not isinstance(module.net, Stream)


def test_a_wrong_name_says_which_there_are(loader):
    with pytest.raises(AcclimateError, match=r"Classifier \(it has: net\), got 'model'"):
        trainer(AdaptAtTest()).test(Classifier(), loader, verbose=False)
