"""From samples to Markdown tables, and whether the nets were the same."""

from statistics import median

import numpy as np
import workloads

MEASURES = {
    "cpu": "CPU time, one thread, ms a call",
    "wall": "wall time, all cores, ms a call",
}
# A near tie may break either way, and what follows a token follows from it;
# a beam search breaks many, so its scores are compared.
TOKENS_ALIKE = 0.9
SCORES_APART = 0.01
NOTES = """\
- Ours returns tokens, scores and alignments. Of the others the greedy searches
  of KerasHub and PyTorch return tokens alone, that of Keras tokens and scores,
  and no beam search but JoeyNMT's and TF Addons' has a length penalty.
- PyTorch and JoeyNMT claim no rank: how fast a PyTorch build multiplies
  matrices differs from processor to processor more than libraries do."""


def markdown(results, ours):
    """The whole report."""
    machine = results["machine"]
    lines = [
        f"{machine['cores']} cores, {machine['processor']}, Python "
        f"{machine['python']}, {results['rounds']} rounds. In each cell: "
        "median [least-most], and how many times as long as ours it took "
        "(median of the rounds' ratios; above 1 ours is faster).",
        "",
        NOTES,
    ]
    for name, reason in results["skipped"].items():
        lines.append(f"- {name}: skipped, {reason}")
    parts = [
        workload(name, found, ours)
        for name, found in results["workloads"].items()
    ]
    if "server" in results:
        parts.append(server(results["server"]))
    return "\n\n".join(["\n".join(lines), *parts]) + "\n"


def workload(name, found, ours):
    """One workload: a table for each measure, one of speeds, the check."""
    parts = [f"## {name}"]
    for measure, times in found["times"].items():
        parts.append(f"### {MEASURES[measure]}\n\n{load(times)}")
        parts.append(table(times, lambda *a, m=measure: cell(*a, m, ours)))
    if "cpu" in found["times"]:
        parts.append("### GFLOP/s of one core, by CPU time")
        speeds = table(
            found["times"]["cpu"],
            lambda times, peer, case: speed(name, times[peer][case], case),
        )
        parts.append(speeds)
    parts.append("### The same net?\n\n" + sameness(found["peers"], ours))
    return "\n\n".join(parts)


def server(found):
    """Latency of the development server beside direct calls."""
    title = "## Server: W2, beam 5, wall time, ms a request"
    if "error" in found:
        return f"{title}\n\n{found['error']}"
    sizes = list(next(iter(found.values())))
    heads = [f"{p}, {n} texts" for n in sizes for p in ("p50", "p99")]
    rows = [["", *heads], ["---"] * (len(heads) + 1)]
    for way, times in found.items():
        cells = [digits(x) for n in sizes for x in times[n].values()]
        rows.append([way, *cells])
    return f"{title}\n\n" + lay(rows)


def lay(rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def table(times, cell):
    cases = list(
        dict.fromkeys(case for peer in times.values() for case in peer)
    )
    rows = [["", *cases], ["---"] * (len(cases) + 1)]
    for peer in times:
        row = [
            cell(times, peer, case) if times[peer].get(case) else "-"
            for case in cases
        ]
        rows.append([peer, *row])
    return lay(rows)


def cell(times, peer, case, measure, ours):
    values = [sample[measure] for sample in times[peer][case]]
    low, high = (digits(1e3 * x) for x in (min(values), max(values)))
    text = f"{digits(1e3 * median(values))} [{low}-{high}]"
    reference = times.get(ours, {}).get(case)
    if reference and peer != ours:
        ratios = [
            value / sample[measure]
            for value, sample in zip(values, reference, strict=True)
        ]
        text += f" **{median(ratios):.2f}**"
    return text


def speed(name, samples, case):
    kind, batch = case.split()
    work = workloads.gigaflops(workloads.WORKLOADS[name], kind, int(batch))
    return f"{work / median(sample['cpu'] for sample in samples):.1f}"


def digits(number):
    """Three significant digits."""
    return f"{number:.{max(0, 2 - int(np.floor(np.log10(number))))}f}"


def load(times):
    others = [
        sample["others"]
        for peer in times.values()
        for samples in peer.values()
        for sample in samples
        if "others" in sample
    ]
    if not others:
        return "What else the machine was doing is not known."
    quiet = sum(x < 0.2 for x in others) / len(others)
    return (
        f"Other processes kept {median(others):.2f} cores busy (median; at "
        f"most {max(others):.2f}); {quiet:.0%} of the samples fell in a quiet "
        "moment (less than 0.2)."
    )


def sameness(peers, ours):
    """Parameters, loss before and after a step, tokens and scores like ours."""
    rows = [
        ["", "parameters", "losses", "greedy tokens", "beam tokens", "scores"],
        ["---"] * 6,
    ]
    notes = []
    for name, peer in peers.items():
        versions = peer.get("versions", {}).items()
        notes.append(f"{name}: " + ", ".join(" ".join(v) for v in versions))
        if "error" in peer:
            notes[-1] += peer["error"]
            continue
        if peer.get("differs"):
            notes[-1] += f"; {peer['differs']}"
        agreement = compare(peer, peers.get(ours, {}))
        rows.append(
            [
                name,
                f"{peer['parameters']:,}",
                " ".join(f"{loss:.5f}" for loss in peer.get("train", ())),
                *(f"{x:.0%}" if x is not None else "" for x in agreement[:2]),
                "" if agreement[2] is None else f"within {agreement[2]:.0e}",
            ]
        )
    return "\n".join([lay(rows), "", *(f"- {note}" for note in notes)])


def compare(peer, ours):
    """Shares of greedy and of beam tokens alike; how far the scores are."""
    greedy = beam = scores = None
    if "greedy" in peer and "greedy" in ours:
        greedy = alike(peer["greedy"][0], ours["greedy"][0])
    if "beam" in peer and "beam" in ours:
        beam = alike(peer["beam"][0], ours["beam"][0])
        scores = np.subtract(peer["beam"][1], ours["beam"][1])
        scores = float(np.abs(scores).max())
    return greedy, beam, scores


def alike(tokens, others):
    return float(np.mean(np.equal(tokens, others)))


def problems(results, ours):
    """A text for `sys.exit` where a net was not the same, else None."""
    found = [results["skipped"].get(ours)]
    found.append(results.get("server", {}).get("error"))
    for name, workload in results["workloads"].items():
        peers = workload["peers"]
        for peer, answer in peers.items():
            where = f"{name}, {peer}"
            errors = [answer.get("error"), *answer.get("failed", {}).values()]
            found += [f"{where}: {error}" for error in errors if error]
            if answer.get("differs"):
                continue
            greedy, _, apart = compare(answer, peers.get(ours, {}))
            if greedy is not None and greedy < TOKENS_ALIKE:
                found.append(f"{where}: decodes other tokens than {ours}")
            if apart is not None and apart > SCORES_APART:
                found.append(f"{where}: its beam search scores otherwise")
    return "\n".join(filter(None, found)) or None
