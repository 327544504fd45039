"""The same net written by hand in eager PyTorch, in an environment of its own.

Claims no rank: on some machines the PyTorch build at hand multiplies matrices
much slower than TensorFlow's. PyTorch's LSTM adds two biases, of which one
stays unused here, so it counts more parameters.
"""

import torch
import workloads
from torch import nn
from torch.nn import functional as F
from workloads import END
from workloads import PAD
from workloads import START


class Net(nn.Module):
    def __init__(self, workload):
        super().__init__()
        w = self.workload = workload
        self.lstm = w.cell == "lstm"
        self.source_embedding = nn.Embedding(w.source_size, w.embedding)
        self.target_embedding = nn.Embedding(w.target_size, w.embedding)
        self.encoder = (nn.LSTM if self.lstm else nn.GRU)(
            w.embedding, w.encoder, batch_first=True, bidirectional=True
        )
        self.cell = (nn.LSTMCell if self.lstm else nn.GRUCell)(
            w.embedding + w.units, w.units
        )
        self.keys = nn.Linear(w.units, w.attention, bias=False)
        self.query = nn.Linear(w.units, w.attention, bias=False)
        self.score = nn.Linear(w.attention, 1, bias=False)
        self.vector = nn.Linear(2 * w.units, w.units, bias=False)
        self.output_layer = nn.Linear(w.units, w.target_size)

    def encode(self, source):
        mask = source != PAD
        memory, last = self.encoder(self.source_embedding(source))
        last = last if self.lstm else (last,)
        # (directions, batch, units) -> (batch, directions * units)
        states = [x.transpose(0, 1).flatten(1) for x in last]
        states.append(torch.zeros_like(states[0]))
        return (memory, self.keys(memory), mask), states

    def advance(self, embedded, states, attended):
        memory, keys, mask = attended
        *states, vector = states
        states = states if self.lstm else states[0]
        states = self.cell(torch.cat([embedded, vector], -1), states)
        states = states if self.lstm else (states,)
        hidden = torch.tanh(self.query(states[0])[:, None] + keys)
        scores = self.score(hidden).squeeze(-1).masked_fill(~mask, -1e9)
        context = (scores.softmax(-1)[:, None] @ memory)[:, 0]
        vector = torch.tanh(self.vector(torch.cat([states[0], context], -1)))
        return vector, [*states, vector]

    def step(self, token, states, attended):
        embedded = self.target_embedding(token)
        vector, states = self.advance(embedded, states, attended)
        return self.output_layer(vector), states

    def forward(self, source, target):
        attended, states = self.encode(source)
        vectors = []
        for embedded in self.target_embedding(target).unbind(1):
            vector, states = self.advance(embedded, states, attended)
            vectors.append(vector)
        return self.output_layer(torch.stack(vectors, 1))

    @torch.no_grad()
    def load(self, arrays):
        load_cell(self.encoder, arrays, "forward", "_l0")
        load_cell(self.encoder, arrays, "backward", "_l0_reverse")
        load_cell(self.cell, arrays, "cell")
        for parameter, name in [
            (self.source_embedding.weight, "source_embedding"),
            (self.target_embedding.weight, "target_embedding"),
            (self.keys.weight.T, "memory_kernel"),
            (self.query.weight.T, "query_kernel"),
            (self.score.weight[0], "score_vector"),
            (self.vector.weight.T, "vector_kernel"),
            (self.output_layer.weight.T, "output_kernel"),
            (self.output_layer.bias, "output_bias"),
        ]:
            parameter.copy_(torch.tensor(arrays[name]))


def load_cell(module, arrays, name, suffix=""):
    """Copies a Keras cell's weights into a PyTorch one."""
    kernel, recurrent, bias = (
        torch.tensor(arrays[f"{name}/{part}"])
        for part in ("kernel", "recurrent", "bias")
    )
    if len(bias.shape) == 1:  # LSTM
        biases = bias, torch.zeros_like(bias)
    else:
        # Keras's GRU orders its gates z, r, n; PyTorch's r, z, n.
        kernel, recurrent, biases = map(swap, (kernel, recurrent, bias))
    getattr(module, "weight_ih" + suffix).copy_(kernel.T)
    getattr(module, "weight_hh" + suffix).copy_(recurrent.T)
    getattr(module, "bias_ih" + suffix).copy_(biases[0])
    getattr(module, "bias_hh" + suffix).copy_(biases[1])


def swap(gates):
    z, r, n = gates.chunk(3, -1)
    return torch.cat([r, z, n], -1)


def adam(net):
    return torch.optim.Adam(net.parameters(), eps=1e-7)  # as in Keras


class Peer:
    kinds = ("train", "greedy", "beam")
    versions = {"torch": torch.__version__}

    def __init__(self, workload, threads, variant=""):
        torch.set_num_threads(threads)
        self.workload = workload
        self.net = Net(workload)
        self.net.load(workloads.weights(workload))
        self.optimizer = adam(self.net)

    def parameters(self):
        return sum(p.numel() for p in self.net.parameters())

    def batch(self, size):
        batch = workloads.batch(self.workload, size)
        return [torch.tensor(x, dtype=torch.int64) for x in batch]

    def train(self, size):
        source, target, labels = self.batch(size)

        def step():
            logits = self.net(source, target)
            loss = F.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=PAD
            )
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss.item()

        return step

    @torch.inference_mode()
    def greedy_search(self, source):
        attended, states = self.net.encode(source)
        token = source.new_full([len(source)], START)
        finished, ids = token == END, []
        for _ in range(self.workload.target_length):
            logits, states = self.net.step(token, states, attended)
            token = logits.argmax(-1).masked_fill(finished, PAD)
            ids.append(token)
            finished = finished | (token == END)
            if finished.all():
                break
        return (torch.stack(ids, 1),)

    @torch.inference_mode()
    def beam_search(self, source):
        rows, width = len(source), self.workload.width
        attended, states = self.net.encode(source)
        attended = [x.repeat_interleave(width, 0) for x in attended]
        states = [x.repeat_interleave(width, 0) for x in states]
        token = source.new_full([rows * width], START)
        finished = token == END
        ids = source.new_zeros([rows * width, 0])
        scores = torch.full([rows, width], -1e9)
        scores[:, 0] = 0.0
        # A finished hypothesis continues with END, at no cost.
        stay = torch.full([self.workload.target_size], -1e9)
        stay[END] = 0.0
        first = width * torch.arange(rows)[:, None]
        for _ in range(self.workload.target_length):
            logits, states = self.net.step(token, states, attended)
            steps = logits.log_softmax(-1)
            steps = torch.where(finished[:, None], stay, steps)
            total = (scores.view(-1, 1) + steps).view(rows, -1)
            scores, flat = total.topk(width)
            parent = (first + flat // len(stay)).flatten()
            token = (flat % len(stay)).flatten()
            ids = torch.cat([ids[parent], token[:, None]], 1)
            states = [x[parent] for x in states]
            finished = finished[parent] | (token == END)
            if finished.all():
                break
        return ids.view(rows, width, -1), scores

    def greedy(self, size):
        source = self.batch(size)[0]
        return lambda: [x.numpy() for x in self.greedy_search(source)]

    def beam(self, size):
        source = self.batch(size)[0]
        return lambda: [x.numpy() for x in self.beam_search(source)]
