"""JoeyNMT, in an environment of its own. Claims no rank: see `hand_pytorch`.

Its attention is as wide as the decoder and its output layer has no bias, so
both are replaced here to make the net the same. What remains different: an
LSTM decoder starts from the encoder's hidden state in place of its memory
cell, so the loss of such a net differs.
"""

from types import SimpleNamespace

import joeynmt
import torch
from joeynmt.attention import BahdanauAttention
from joeynmt.model import build_model
from joeynmt.search import beam_search
from joeynmt.search import greedy
from torch import nn
from workloads import END
from workloads import PAD
from workloads import START
from workloads import UNKNOWN
from workloads import weights

from peers import hand_pytorch
from peers.hand_pytorch import adam
from peers.hand_pytorch import load_cell


class Vocabulary(SimpleNamespace):
    """As much of JoeyNMT's vocabulary as its model asks for."""

    pad_index, bos_index, eos_index, unk_index = PAD, START, END, UNKNOWN
    sep_index, specials, lang_tags = None, [], []

    def __len__(self):
        return self.size


def build(workload):
    w = workload
    embeddings = {"embedding_dim": w.embedding, "scale": False}
    common = {"rnn_type": w.cell, "embeddings": embeddings}
    config = {
        "encoder": {"type": "recurrent", "hidden_size": w.encoder, **common},
        "decoder": {
            "type": "recurrent",
            "hidden_size": w.units,
            "init_hidden": "last",
            **common,
        },
    }
    net = build_model(
        config, Vocabulary(size=w.source_size), Vocabulary(size=w.target_size)
    )
    net.decoder.attention = BahdanauAttention(w.attention, w.units, w.units)
    net.decoder.output_layer = nn.Linear(w.units, w.target_size)
    net.loss_function = "crossentropy", 0.0
    return net


@torch.no_grad()
def load(net, arrays):
    decoder, attention = net.decoder, net.decoder.attention
    load_cell(net.encoder.rnn, arrays, "forward", "_l0")
    load_cell(net.encoder.rnn, arrays, "backward", "_l0_reverse")
    load_cell(decoder.rnn, arrays, "cell", "_l0")
    decoder.att_vector_layer.bias.zero_()
    for parameter, name in [
        (net.src_embed.lut.weight, "source_embedding"),
        (net.trg_embed.lut.weight, "target_embedding"),
        (attention.key_layer.weight.T, "memory_kernel"),
        (attention.query_layer.weight.T, "query_kernel"),
        (attention.energy_layer.weight[0], "score_vector"),
        (decoder.att_vector_layer.weight.T, "vector_kernel"),
        (decoder.output_layer.weight.T, "output_kernel"),
        (decoder.output_layer.bias, "output_bias"),
    ]:
        parameter.copy_(torch.tensor(arrays[name]))


class Peer(hand_pytorch.Peer):
    versions = {"joeynmt": joeynmt.__version__, "torch": torch.__version__}

    def __init__(self, workload, threads, variant=""):
        torch.set_num_threads(threads)
        self.workload = workload
        if workload.cell == "lstm":
            self.differs = "starts its LSTM from another memory cell"
        self.net = build(workload)
        load(self.net, weights(workload))
        self.optimizer = adam(self.net)

    def train(self, size):
        source, target, labels = self.batch(size)

        def step():
            self.net.train()
            total, *_ = self.net(
                return_type="loss",
                src=source,
                src_mask=(source != PAD)[:, None],
                src_length=(source != PAD).sum(-1),
                trg_input=target,
                trg=labels,
                trg_mask=(target != PAD)[:, None],
            )
            loss = total / (labels != PAD).sum()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss.item()

        return step

    @torch.inference_mode()
    def search(self, search, source, **options):
        self.net.eval()
        mask = (source != PAD)[:, None]
        memory, last, _, _ = self.net(
            return_type="encode",
            src=source,
            src_mask=mask,
            src_length=mask[:, 0].sum(-1),
        )
        return search(
            model=self.net,
            encoder_output=memory,
            encoder_hidden=last,
            src_mask=mask,
            max_output_length=self.workload.target_length,
            return_prob="hyp",
            **options,
        )

    def greedy_search(self, source):
        return self.search(greedy, source)[:1]

    def beam_search(self, source):
        rows, width = len(source), self.workload.width
        ids, scores, _ = self.search(
            beam_search, source, beam_size=width, n_best=width, alpha=0.0
        )
        ids = torch.as_tensor(ids).view(rows, width, -1)
        return ids, torch.as_tensor(scores).view(rows, width)
