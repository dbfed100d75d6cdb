"""The table of models (resources/transformers/models.json) against the classes of transformers: what `plan --to hf` says of each.

Of every family in the table, models are built on the meta device from configurations that nobody saw while the table was made. Their names and shapes, in a
file without data, are accepted; the same with any kind of tensor removed, renamed or of another shape is refused, and the reason names it. Small models are
saved by save_pretrained and converted, too; from_pretrained then finds no key missing or unexpected.

    transformers_models_peer.py [MODEL_TYPE...] [SHARE/SHARES]   all families, which takes an hour, or the named ones"""
import json
import logging
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import warnings

import make_transformers_models as made

import torch
import transformers

TABLE = os.path.join(os.path.dirname(__file__), "..", "..", "resources", "transformers", "models.json")
SHARDSCOPE = os.environ["SHARDSCOPE"]
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 96, "moe_intermediate_size": 24, "n_embd": 32,
         "n_head": 4, "d_model": 32, "d_ff": 48, "d_kv": 8, "shared_expert_intermediate_size": 24, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 64}


def write(place, config, tensors):
    """A directory of a model whose weights are a hole in a file."""
    header, end = {}, 0
    for name, shape in sorted(tensors.items()):
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "model.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + end)
    with open(os.path.join(place, "config.json"), "w") as out:
        # As transformers writes it, which has no infinity in its JSON.
        out.write(json.dumps(config).replace("Infinity", "1e300"))


def reasons(place):
    """Why it is said not to load; empty if it is."""
    done = subprocess.run([SHARDSCOPE, "plan", place, place + "-out", "--to", "hf", "--json"], capture_output=True, text=True)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        raise AssertionError("no plan: %s" % done.stderr[:400])
    found = (said.get("plan") or said).get("transformers") or {}
    return [] if found.get("loads") else found.get("why") or ["no reason"]


def config_of(sample, family):
    config = {key: value for key, value in sample.config.items() if key != "num_labels"}
    return dict(config, model_type=family.config_class.model_type, architectures=[family.model_class.__name__], id2label={str(i): "L%d" % i for i in range(sample.config["num_labels"] or 2)})


def configurations(family, count):
    """The first one, and others with several entries changed."""
    first = family.first()
    yield first
    options = {}
    numbers = random.Random(family.model_class.__name__)
    keys = sorted(set(family.keys(first.stated)), key=lambda pair: pair[0])
    for _ in range(12 * count):
        values = {}
        for key, owner in numbers.sample(keys, min(4, len(keys))):
            some = options.setdefault(key, made.others(made.at(first.config, key), made.kinds(owner, key.split(".")[-1]), key))
            if some:
                values.update(made.Samples.with_lists(first, key, numbers.choice(some)))
        sample = family.build(made.changed(first.stated, values))
        if sample and sample.saved and sum(map(len, (sample.saved,))) < 6000 and min(min(shape or (1,)) for shape in sample.saved.values()) > 0:
            yield sample
            count -= 1
            if count == 0:
                return


def kinds_of(tensors):
    """name with "#" for numbers: the names"""
    found = {}
    for name in tensors:
        found.setdefault(re.sub(r"(?<=\.)\d+(?=\.|$)", "#", name), []).append(name)
    return found


def damaged(tensors, unknown):
    """What was done, the tensors then, and a name that the reason must hold. Of the kinds `unknown` the table does not know every dimension."""
    for kind, names in kinds_of(tensors).items():
        yield "without " + kind, {name: shape for name, shape in tensors.items() if name not in names}, names
        other = {name + "_x" for name in names}
        yield "renamed " + kind, {(name + "_x" if name in names else name): shape for name, shape in tensors.items()}, [*names, *other]
        shape = tensors[names[-1]]
        if kind in unknown:
            continue
        yield "other shape of " + kind, dict(tensors, **{names[-1]: (*shape[:-1], shape[-1] + 3) if shape else (3,)}), names[-1:]


def prove(family, unknown, place, figures):
    failures = []
    for number, sample in enumerate(configurations(family, 4)):
        config = config_of(sample, family)
        for spelling in ("saved", "memory"):
            if spelling == "memory" and sample.memory == sample.saved:
                continue
            write(place, config, getattr(sample, spelling))
            figures["configurations"] += 1
            if why := reasons(place):
                figures["refused"] += 1
                failures.append("refused as %s (%s): %s" % (spelling, changes(sample, family), why[:2]))
        if number > 0:
            continue
        for what, tensors, names in damaged(sample.saved, unknown):
            write(place, config, tensors)
            why = reasons(place)
            figures["damaged"] += 1
            tie = "lm_head" in what or any(re.search(pattern, names[0]) for pattern in family.ignored) or names[0] in family.tied
            if not why and not (tie and what.startswith("without")):
                figures["wrong"] += 1
                failures.append("accepted %s" % what)
            elif why and not any(name in text for name in names for text in why):
                figures["unnamed"] += 1
    return failures


def changes(sample, family):
    first = family.first()
    return {key: made.at(sample.config, key) for key, _ in family.keys(first.stated) if made.at(sample.config, key) != made.at(first.config, key)}


def load_small(family, place, figures):
    stated = family.config_class().to_dict()
    def shrink(config):
        for key, value in config.items():
            if isinstance(value, dict):
                shrink(value)
            elif key in SMALL and isinstance(value, int):
                config[key] = SMALL[key]
    stated = made.plain(family.config_class())
    made.find_owners(family.config_class(), "", family.owners)
    made.shrink(stated, family.owners, True)
    shrink(stated)
    try:
        model = family.model_class(family.config_class.from_dict(stated))
        if sum(parameter.numel() for parameter in model.parameters()) > 40_000_000:
            return []
        model.save_pretrained(place)
    except Exception:
        return []
    _, itself = family.model_class.from_pretrained(place, output_loading_info=True)
    done = subprocess.run([SHARDSCOPE, "convert", place, place + "-hf", "--to", "hf"], capture_output=True, text=True)
    figures["loaded"] += 1
    if done.returncode:
        return ["a small model is refused: %s" % done.stderr[-400:]]
    _, report = family.model_class.from_pretrained(place + "-hf", output_loading_info=True)
    wrong = {key: value for key, value in report.items() if key in ("missing_keys", "unexpected_keys", "mismatched_keys") and set(value) - set(itself[key])}
    return ["from_pretrained: %s" % wrong] if wrong else []


def main():
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    made.record_reads()
    with open(TABLE) as text:
        table = json.load(text)
    models, lines = table["models"], table["lines"]
    only = [word for word in sys.argv[1:] if "/" not in word]
    share, shares = next((map(int, word.split("/")) for word in sys.argv[1:] if "/" in word), (0, 1))
    figures = dict.fromkeys(("families", "configurations", "refused", "damaged", "wrong", "unnamed", "open", "loaded"), 0)
    failed = 0
    for number, (config_class, model_class) in enumerate(made.classes(only)):
        model = models.get(config_class.model_type)
        if not model or model["class"] != model_class.__name__ or number % shares != share:
            continue
        figures["families"] += 1
        unknown = {re.sub(r"\{.*?\}|(?<=\.)\d+(?=\.|$)", "#", line.split("|")[0]) for line in map(lines.__getitem__, model["tensors"][0]) if "?" in line.split("|")[1]}
        figures["open"] += len(unknown)
        with tempfile.TemporaryDirectory() as place:
            try:
                with made.within(300):
                    family = made.Family(config_class, model_class)
                    failures = prove(family, unknown, os.path.join(place, "a"), figures) + load_small(family, os.path.join(place, "b"), figures)
            except (Exception, TimeoutError) as error:
                failures = ["%s %s" % (type(error).__name__, str(error)[:300])]
        for failure in failures:
            print("FAIL %s: %s" % (config_class.model_type, failure), flush=True)
        failed += len(failures)
    print(figures)
    sys.stdout.flush()
    os._exit(1 if failed or not figures["families"] else 0)


if __name__ == "__main__":
    main()
