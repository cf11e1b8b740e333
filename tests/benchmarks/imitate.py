# ruff: noqa
# mypy: ignore-errors
"""imitate.py OUT STUDENT_FOLDER LAYERS EPOCHS TEACHER_RUN...: fine-tune first layers to predict the teachers' scores of words."""

import sys, time, json
from pathlib import Path
import numpy as np, torch
from torch import nn
from rss_rl.results.score import open_with_data
from rss_rl.rollouts.snapshot import inference
from rss_rl.models.inputs import tensor_batch
from rss_rl.ops.sentence_ends import sentence_ends, sentence_numbers, stop_ids
from rss_rl.pretrained.folder import open_pretrained
from rss_rl.pretrained.reader import WordReader, layers_of

out, student, layers, epochs, kind = (
    sys.argv[1],
    sys.argv[2],
    int(sys.argv[3]),
    float(sys.argv[4]),
    sys.argv[5],
)
runs = sys.argv[6:]
RATE = 2e-4
torch.manual_seed(0)
torch.set_num_threads(2)


def scores(run):
    config, models, prepared, device = open_with_data(Path(run), "best", None)
    found = {}
    for name in ("train", "dev"):
        split = prepared.split(name)
        rows = []
        with inference(models, 2, device, config.learner.precision):
            for start in range(0, len(split), 16):
                t = tensor_batch(split.batch(np.arange(start, min(start + 16, len(split)))), device)
                e = models.policy_inputs(t.tokens, t.valid, t.states)[0]
                p = models.policy
                while hasattr(p, "inner"):
                    p = p.inner
                v = t.valid[0]
                if kind == "logits":
                    s = p.logits(e, v)[:, 0]
                else:
                    s = p.heights(e[..., :-1], v)[:, 0]
                s = s.float()
                for i in range(len(v)):
                    x = s[i][v[i]]
                    rows.append((x - (0 if kind == "logits" else x.mean())).numpy())
        found[name] = rows
    every = np.concatenate(found["train"])
    m, d = every.mean(), every.std()
    print(run, "score mean %.2f sd %.2f" % (m, d), flush=True)
    return {n: [(r - m) / d for r in rows] for n, rows in found.items()}, prepared


K = 48


def directions(runs):
    """Linear functions of the teachers' states that their policies use: K principal ones."""
    maps = []
    X = None
    for run in runs:
        config, models, prepared, device = open_with_data(Path(run), "best", None)
        p = models.policy
        while hasattr(p, "inner"):
            p = p.inner
        size = models.context.size
        split = prepared.split("train")
        rng = np.random.default_rng(0)
        b = split.batch(np.sort(rng.choice(len(split), 200, replace=False)))
        t = tensor_batch(b, device)
        with torch.no_grad():
            e = models.policy_inputs(t.tokens, t.valid, t.states)[0][..., :-1].float()
            v = t.valid[0]
            pool = (e * v[..., None]).sum(1) / v.sum(1, keepdim=True)
            y = torch.from_numpy(b.labels)
            W = p.heights[0].hidden.weight.float()
            a, _, c = W.chunk(3, 1)
            maps += [(a + c * pool[y == k].mean(0))[:, -size:] for k in (0, 1)]
            X = e[..., -size:][v] if X is None else X
    A = torch.cat(maps)
    m = X.mean(0)
    C = torch.cov(X.T)
    w, V = torch.linalg.eigh(A @ C @ A.T)
    w, V = w.flip(0), V.flip(1)
    print(
        "directions", A.shape, "variance of the first", K, float(w[:K].sum() / w.sum()), flush=True
    )
    return (V[:, :K].T @ A) / w[:K].sum().sqrt(), m


def projected(run, P, m):
    config, models, prepared, device = open_with_data(Path(run), "best", None)
    out = {}
    for name in ("train", "dev"):
        split = prepared.split(name)
        rows = []
        for row in range(len(split)):
            b = split.batch([row])
            s = torch.from_numpy(b.states[0][0]).float()[torch.from_numpy(b.valid[0][0])]
            rows.append(((s - m) @ P.T).half().numpy())
        out[name] = rows
    return out


cache = Path(f"scores-{kind}-{'-'.join(Path(r).name for r in runs)}.pt")
from rss_rl.data.store import open_prepared

if cache.exists():
    target = torch.load(cache, weights_only=False)
else:
    all_ = [scores(r)[0] for r in runs]
    target = {
        n: [np.mean([a[n][i] for a in all_], 0) for i in range(len(all_[0][n]))]
        for n in ("train", "dev")
    }
    if kind == "both":
        pr = projected(runs[0], *directions(runs))
        target = {
            n: [
                np.concatenate([target[n][i][:, None], pr[n][i]], 1).astype(np.float16)
                for i in range(len(pr[n]))
            ]
            for n in target
        }
    torch.save(target, cache)
prepared = open_prepared("prepared/eraser-movies")
words = prepared.vocabulary.words
stops = stop_ids(words)


def flat(name):
    split = prepared.split(name)
    toks = []
    sent = []
    y = []
    n = 0
    for row in range(len(split)):
        b = split.batch([row])
        t = torch.from_numpy(b.tokens[0][:1])
        t = t[:, torch.from_numpy(b.valid[0][0])]
        s = sentence_numbers(sentence_ends(t, stops))[0]
        toks.append(t[0])
        sent.append(s + n)
        n += int(s.max()) + 1
        y.append(
            torch.from_numpy(np.asarray(target[name][row], np.float32)).reshape(t.shape[1], -1)
        )
        assert len(y[-1]) == t.shape[1], (row, len(y[-1]), t.shape)
    return torch.cat(toks), torch.cat(sent), torch.cat(y)


data = {n: flat(n) for n in ("train", "dev")}
pre = open_pretrained(student)
full = pre.encoder(0.0)
L = layers_of(full)
upper = list(L)[layers:]
del L[layers:]
reader = WordReader(pre, full, words)
width = 1 + K if kind == "both" else 1
head = nn.Linear(reader.size, width)
nn.init.zeros_(head.weight)
nn.init.zeros_(head.bias)


def batches(name, shuffle, words_each=2000):
    toks, sent, y = data[name]
    starts = torch.cat(
        [
            torch.zeros(1, dtype=torch.long),
            (sent[1:] != sent[:-1]).nonzero()[:, 0] + 1,
            torch.tensor([len(sent)]),
        ]
    )
    size = (starts[1:] - starts[:-1]).numpy()
    order = np.lexsort((np.random.rand(len(size)), size))
    groups = []
    cur = []
    n = 0
    for i in order:
        cur.append(i)
        n += size[i]
        if n >= words_each:
            groups.append(cur)
            cur = []
            n = 0
    if cur:
        groups.append(cur)
    if shuffle:
        np.random.shuffle(groups)
    for g in groups:
        idx = torch.cat([torch.arange(starts[i], starts[i + 1]) for i in g])
        text = torch.repeat_interleave(torch.arange(len(g)), torch.from_numpy(size[np.array(g)]))
        yield toks[idx], text, len(g), y[idx]


def predict(tokens, text, count):
    with torch.autocast("cpu", torch.bfloat16):
        return head(reader.word_states(tokens, text, count).float())


def check():
    reader.eval()
    p = []
    q = []
    with torch.no_grad():
        for t, s, c, y in list(batches("dev", False))[::2]:
            p.append(predict(t, s, c))
            q.append(y)
    reader.train()
    p, q = torch.cat(p).float(), torch.cat(q)
    return float(torch.corrcoef(torch.stack([p[:, 0], q[:, 0]]))[0, 1]), float(
        (p[:, 1:] - q[:, 1:]).square().sum(1).mean()
    )


per = sum(1 for _ in batches("train", False))
total = int(epochs * per)
print("updates", total, "of", per, "an epoch", flush=True)
opt = torch.optim.AdamW(
    [{"params": reader.parameters(), "lr": RATE}, {"params": head.parameters(), "lr": 10 * RATE}],
    weight_decay=0.01,
)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: min((s + 1) / 100, max(0.0, 1 - s / total))
)
np.random.seed(0)
step = 0
t0 = time.time()
run = 0.0
reader.train()
while step < total:
    for t, s, c, y in batches("train", True):
        loss = (predict(t, s, c) - y).square().sum(1).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        opt.step()
        sched.step()
        step += 1
        run += float(loss.detach())
        if step % 50 == 0 and step % 200:
            print(step, "mse %.3f" % (run / 50), "%.0fs" % (time.time() - t0), flush=True)
            run = 0.0
        elif step % 200 == 0:
            print(
                step,
                "mse %.3f" % (run / 50),
                "dev r %.3f rest %.3f" % check(),
                "%.0fs" % (time.time() - t0),
                flush=True,
            )
            run = 0.0
        if step >= total:
            break
print("end dev r %.3f rest %.3f" % check())
L.extend(upper)
reader.model.save_pretrained(out)
pre.tokenizer.save_pretrained(out)
