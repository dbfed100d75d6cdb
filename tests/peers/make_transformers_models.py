"""Writes resources/transformers/models.json: which tensors, of which shapes, each model of transformers wants of a checkpoint.

    run_in_peer loaders tests/peers/make_transformers_models.py [--out FILE] [--check SHARE/SHARES] [MODEL_TYPE...]

Every model class is built on the meta device from many small configurations. A configuration differs from the first one in one key, then
in several. From names and shapes of what save_pretrained would write follow, for each tensor: what its dimensions are (numbers and products
of configuration values), what counts its layers and experts, and on which values it depends that it is there. Only what all configurations
bear out is written, and configurations made anew must agree. A class that this cannot explain is left out."""
import argparse
import contextlib
import copy
import itertools
import json
import logging
import os
import random
import re
import signal
import sys
import typing
import warnings
from fractions import Fraction

import torch
import transformers
from transformers import initialization
from transformers.configuration_utils import PreTrainedConfig
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import _get_tied_weight_keys
from transformers.models.auto import modeling_auto

MAPPINGS = ["SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT", "CAUSAL_LM", "MASKED_LM", "MULTIMODAL_LM", "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION"]
LAYERS = re.compile(r"(num_hidden_layers|n_layers?|num_layers|depth|(en|de)coder_layers|num_(en|de)coder_layers)$")
EXPERTS = re.compile(r"(num_(local_|routed_)?experts|n_routed_experts|moe_num_experts)$")
# Of no weight: how a model computes, and what is written beside it.
PLAIN = re.compile(r"(^|\.)(_.*|.*dropout.*|(?!pad)\w+_token_id|.*_token_index|rope_(scaling|parameters|theta)|.*_eps|epsilon|initializer_.*|init_std|dtype|torch_dtype|architectures|use_cache|"
                   r"return_dict|output_.*|transformers_version|id2label|label2id|problem_type|is_decoder|chunk_size_feed_forward|gradient_checkpointing|_name_or_path|"
                   r"attn_implementation|model_type|distributed_config|quantization_config|per_layer_config)$")
SECONDS, SEVERAL, ROUNDS = 240, 16, 2


class Unexplained(Exception):
    pass


# ---------------------------------------------------------------------------------------------------- what is observed

reads = None


def record_reads():
    inner = PreTrainedConfig.__getattribute__

    def read(self, key):
        if reads is not None and not key.startswith("__"):
            kind = type(self)
            reads.add((kind, kind.attribute_map.get(key, key)))
        return inner(self, key)
    PreTrainedConfig.__getattribute__ = read


def classes(only):
    seen = set()
    for mapping in ["MODEL_FOR_%s_MAPPING" % name for name in MAPPINGS] + ["MODEL_MAPPING"]:
        found = getattr(modeling_auto, mapping)
        for config_class in found.keys():
            if only and config_class.model_type not in only:
                continue
            try:
                models = found[config_class]
            except Exception:
                continue  # needs a library that is not there
            for model in models if isinstance(models, (tuple, list)) else (models,):
                if (config_class, model) not in seen and isinstance(model, type):
                    seen.add((config_class, model))
                    yield config_class, model


def at(config, path):
    for part in path.split("."):
        if not isinstance(config, dict) or part not in config:
            return None
        config = config[part]
    return config


def changed(config, values):
    config = copy.deepcopy(config)
    for path, value in values.items():
        inner = config
        *parts, last = path.split(".")
        for part in parts:
            inner = inner[part]
        inner[last] = value
    return config


class Sample:
    def __init__(self, config, stated, saved, memory):
        self.config, self.stated, self.saved, self.memory = config, stated, saved, memory


class Family:
    """One class of models with what building it from configurations shows."""

    def __init__(self, config_class, model_class):
        self.config_class, self.model_class = config_class, model_class
        self.owners = {}  # path of a configuration inside: its class
        self.cache = {}

    def build(self, stated):
        """None where the library refuses the configuration."""
        key = json.dumps(stated, sort_keys=True, default=str)
        if key not in self.cache:
            try:
                self.cache[key] = self.sample(stated)
            except TimeoutError:
                raise
            except Exception as error:
                self.error = error
                self.cache[key] = None
        return self.cache[key]

    def sample(self, stated):
        global reads
        config = self.config_class.from_dict(copy.deepcopy(stated))
        given = plain(config)
        reads = set()
        try:
            with torch.device("meta"), initialization.no_init_weights(), initialization.meta_device_safe_creation_ops():
                model = self.model_class(config)
                model.tie_weights()
        finally:
            self.reads, reads = getattr(self, "reads", set()) | reads, None
        state = model.state_dict()
        memory = {name: tuple(t.shape) for name, t in state.items()}
        for name in model._keys_to_ignore_on_save or ():
            state.pop(name, None)
        self.tied = set(tied(model)) | getattr(self, "tied", set())
        for name in tied(model):
            state.pop(name, None)
        # A trained model has all of them; one that is not loaded has no mapping of its own.
        saved = {name: tuple(t.shape) for name, t in revert_weight_conversion(model, state).items()}
        self.ignored = sorted(model._keys_to_ignore_on_load_unexpected | model._keys_to_ignore_on_load_missing)
        self.prefix = model.base_model_prefix
        return Sample(given, stated, saved, {name: shape for name, shape in memory.items() if name in state})

    def first(self):
        config = self.config_class()
        stated = plain(config)
        find_owners(config, "", self.owners)
        for keep in (True, False, None):
            small = copy.deepcopy(stated)
            if keep is not None:
                shrink(small, self.owners, keep)
            sample = self.build(small)
            if sample:
                return sample
        raise Unexplained("cannot be built: %s" % str(self.error)[:200])

    def keys(self, config):
        """The entries that a model reads while it is built."""
        for prefix, owner in self.owners.items():
            inner = at(config, prefix[:-1]) if prefix else config
            for key, value in (inner or {}).items():
                if prefix + key + "." in self.owners or PLAIN.search(key):
                    continue
                if key == "tie_word_embeddings" or any(kind is owner or issubclass(owner, kind) for kind, read in self.reads if read == key):
                    yield prefix + key, owner
            if ("num_labels" in {read for kind, read in self.reads}) and not prefix:
                yield "num_labels", owner


def tied(model):
    """Names that save_pretrained leaves out, because another one has the same tensor."""
    names, patterns = {}, set(_get_tied_weight_keys(model))
    for name, parameter in itertools.chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        names.setdefault(id(parameter), []).append(name)
    for same in names.values():
        listed = [name for name in sorted(same) if len(same) > 1 and any(re.search(pattern, name) for pattern in patterns)]
        yield from listed[:len(same) - 1]


def plain(config):
    stated = json.loads(json.dumps(config.to_dict(), default=lambda value: list(value) if isinstance(value, tuple) else str(value)))
    clean(stated)
    stated["num_labels"] = config.num_labels
    return stated


def clean(stated):
    for key in ("transformers_version", "architectures", "dtype", "torch_dtype", "id2label", "label2id", "_name_or_path"):
        stated.pop(key, None)
    for value in stated.values():
        if isinstance(value, dict):
            clean(value)


def find_owners(config, prefix, owners):
    owners[prefix] = type(config)
    for name in getattr(type(config), "sub_configs", {}) or {}:
        inner = getattr(config, name, None)
        if isinstance(inner, PreTrainedConfig):
            find_owners(inner, prefix + name + ".", owners)


def shrink(stated, owners, keep):
    for prefix in owners:
        inner = at(stated, prefix[:-1]) if prefix else stated
        if not isinstance(inner, dict):
            continue
        before = [value for key, value in inner.items() if LAYERS.search(key) and isinstance(value, int)]
        for key, value in inner.items():
            if isinstance(value, int) and not isinstance(value, bool):
                if LAYERS.search(key) and value > (5 if "layer_types" in inner else 3):
                    inner[key] = 5 if "layer_types" in inner else 3
                if EXPERTS.search(key) and value > 4:
                    inner[key] = 4
                if key == "first_k_dense_replace" and value > 1:
                    inner[key] = 1
        for key, value in inner.items():
            if isinstance(value, list) and len(value) in before and len(value) > 3:
                inner[key] = value[:inner.get("num_hidden_layers", 3)] if keep else None


# ---------------------------------------------------------------------------------------------------- other configurations

def kinds(owner, key):
    try:
        return typing.get_type_hints(owner).get(key)
    except Exception:
        return owner.__annotations__.get(key) if hasattr(owner, "__annotations__") else None


def others(value, annotation, key):
    """Values to try for an entry."""
    said = str(annotation)
    options = []
    if isinstance(value, bool):
        options = [not value]
    elif isinstance(value, int):
        options = [2 * value, 4 * value, value + 1, value // 2, value + 2, 0] if value > 0 else [1, 2, 3]
        if LAYERS.search(key):
            options = [value + 1, value + 2, value - 2, 2 * value]
    elif isinstance(value, float):
        options = [value * 2, value / 2, value + 1]
    elif isinstance(value, str):
        if "Literal" in said:
            options = [arg for part in (annotation, *typing.get_args(annotation)) for arg in typing.get_args(part) if isinstance(arg, str)]
        elif "act" in key or "activation" in key:
            options = ["gelu", "relu", "silu"]
    elif isinstance(value, list) and value:
        options = [value[:-1], value[::-1], value[1:] + value[:1], [value[0]] * len(value), [value[-1]] * len(value)]
    elif isinstance(value, list):
        options = [[0], [1, 2]]
    elif value is None:
        options = [8, 16, True] if annotation is None or "int" in said or "bool" in said else []
        if "bool" in said:
            options = [True, False]
        if "list" in said:
            options += [[1], [0, 2]]
    if value is not None and ("None" in said or "Optional" in said) and not isinstance(value, list):
        options = [option for option in options if option != 0 or isinstance(value, bool)] + [None]
    return [option for option in options if option != value or type(option) is not type(value)]


class Samples:
    def __init__(self, family):
        self.family = family
        self.base = family.first()
        self.all = [self.base]
        self.options = {}  # key: values that can be built
        self.matters = set()
        self.refused = {}  # key: nothing else could be built
        self.alone = []    # (one, other, key): they differ in that entry
        bases, known = [self.base], set(self.names(self.base))
        while bases:
            base = bases.pop(0)
            for sample in self.around(base):
                new = set(self.names(sample)) - known
                if new and len(self.all) < 600:
                    known |= new
                    bases.append(sample)
        self.several(random.Random(5), 2 * SEVERAL)

    @staticmethod
    def names(sample):
        return {re.sub(r"\.\d+(?=\.|$)", ".#", name) for name in sample.saved}

    def around(self, base):
        for key, owner in sorted(set(self.family.keys(base.stated)), key=lambda pair: pair[0]):
            value = at(base.config, key)
            wanted, done = self.options.setdefault(key, []), 0
            for option in others(value, kinds(owner, key.split(".")[-1]), key):
                if done >= (3 if base is self.base or key in self.matters else 1) and option not in (None, 0):
                    continue
                sample = self.family.build(changed(base.stated, self.with_lists(base, key, option)))
                if not sample:
                    continue
                if not sample.saved or at(sample.config, key) == value:
                    continue
                if max(len(sample.saved), 1) > 4 * len(base.saved) + 2000:
                    continue
                done += 1
                if option not in wanted:
                    wanted.append(option)
                self.all.append(sample)
                self.alone.append((base, sample, key))
                if (sample.saved, sample.memory) != (base.saved, base.memory):
                    self.matters.add(key)
                yield sample
            if not done and key not in self.options:
                self.refused[key] = value

    @staticmethod
    def with_lists(base, key, option):
        """A number of layers, with the lists that have an entry for each."""
        *parts, last = key.split(".")
        inner, before = at(base.config, ".".join(parts)) if parts else base.config, at(base.config, key)
        values = {key: option}
        if LAYERS.search(last) and isinstance(option, int):
            for name, value in inner.items():
                if isinstance(value, list) and len(value) == before and value:
                    values[".".join([*parts, name])] = [value[i % before] for i in range(option)]
        return values

    def several(self, random_numbers, count):
        made = []
        keys = sorted(key for key in self.matters if self.options.get(key))
        for _ in range(3 * count):
            if len(made) >= count or not keys:
                break
            some = random_numbers.sample(keys, min(len(keys), random_numbers.randint(2, 4)))
            values = {}
            for key in some:
                values.update(self.with_lists(self.base, key, random_numbers.choice(self.options[key])))
            sample = self.family.build(changed(self.base.stated, values))
            if sample and sample.saved:
                made.append(sample)
        self.all += made
        return made


# ---------------------------------------------------------------------------------------------------- what explains it

def number(value):
    if isinstance(value, bool):
        return int(value)
    if value is None:
        return 0
    return value if isinstance(value, int) else None


def solve(rows, values):
    """The one rational solution of a small system, or None."""
    size = len(rows[0])
    matrix = [[Fraction(x) for x in row] + [Fraction(value)] for row, value in zip(rows, values)]
    at_row = 0
    for column in range(size):
        pivot = next((r for r in range(at_row, len(matrix)) if matrix[r][column] != 0), None)
        if pivot is None:
            return None
        matrix[at_row], matrix[pivot] = matrix[pivot], matrix[at_row]
        matrix[at_row] = [x / matrix[at_row][column] for x in matrix[at_row]]
        for r in range(len(matrix)):
            if r != at_row and matrix[r][column] != 0:
                factor = matrix[r][column]
                matrix[r] = [x - factor * y for x, y in zip(matrix[r], matrix[at_row])]
        at_row += 1
    if any(row[size] != 0 for row in matrix[at_row:]):
        return None
    return [row[size] for row in matrix[:size]]


def fit(points, keys):
    """points: (configuration, value). An expression of the entries `keys` that gives every value, or None."""
    points = list({(tuple(number(at(config, key)) for key in keys), value) for config, value in points})
    if len({value for _, value in points}) == 1:
        return str(points[0][1])
    if not keys or any(None in numbers for numbers, _ in points) or len({numbers for numbers, _ in points}) != len(points):
        return None
    # A product of up to three entries, of which the first may be divided by another one.
    monomials = [((), None)]
    for size in (1, 2, 3):
        for product in itertools.combinations(range(len(keys)), size):
            monomials.append((product, None))
            for first in product:
                rest = tuple(factor for factor in product if factor != first)
                for over in range(len(keys)):
                    if over != first:
                        monomials.append(((first, *rest), over))
    def column(monomial):
        product, over = monomial
        out = []
        for numbers, _ in points:
            value = 1
            for place, factor in enumerate(product):
                value *= numbers[factor]
                if place == 0 and over is not None:
                    if numbers[over] == 0 or value % numbers[over]:
                        value = None
                        break
                    value //= numbers[over]
            out.append(value)
        return out if 2 * out.count(None) < len(out) else None
    columns = [(monomial, values) for monomial in monomials if (values := column(monomial)) is not None]
    wanted = [value for _, value in points]
    whole = [pair for pair in columns if None not in pair[1]]
    for terms, usable in ((1, whole), (2, whole), (3, whole), (1, columns), (2, columns)):
        if terms == 3 and len(usable) > 24:
            continue
        for some in itertools.combinations(usable, terms):
            rows = [(row, value) for row, value in zip(zip(*(values for _, values in some)), wanted) if None not in row]
            if len({value for _, value in rows}) < min(2, len(set(wanted))) or len(rows) < min(len(points), terms + 2):
                continue
            found = solve(*zip(*rows))
            if found and all(x.denominator in (1, 2, 4, 8) and abs(x) <= (64 if product else 1 << 20) and x != 0 for ((product, _), _), x in zip(some, found)):
                return " + ".join(term(keys, monomial, x) for (monomial, _), x in zip(some, found)).replace("+ -", "- ")
    return None


def term(keys, monomial, factor):
    product, over = monomial
    if not product:
        return str(factor)
    factors = [keys[i] for i in product]
    if over is not None:
        factors[0] += " / " + keys[over]
    if factor.numerator != 1:
        factors.append(str(factor.numerator))
    return " * ".join(factors) + (" / %d" % factor.denominator if factor.denominator != 1 else "")


def violated(pinned, config):
    """Whether an entry has another value than its usual one: (key, null) says that it must be neither null nor 0 if it is not usually."""
    return any(not at(config, key) if value is None and usual is not None else at(config, key) != value for key, value, usual in pinned)


class Explanation:
    """Templates of names with their dimensions and conditions, for one of the two spellings (saved, memory)."""

    def __init__(self, samples, spelling):
        self.samples, self.spelling = samples, spelling
        self.keys = sorted(samples.matters)
        self.tables = [(sample, self.folded(getattr(sample, spelling))) for sample in samples.all]
        self.depends = {}
        self.pinned = set()  # entries that may have their first value only
        self.counts = {}  # "model.layers.#": expression
        self.lines = []   # (template with counts, dims, literals)
        self.literals = list(self.make_literals())
        self.find_slots()
        self.explain()

    @staticmethod
    def folded(tensors):
        table = {}
        for name, shape in tensors.items():
            indices = tuple(int(x) for x in re.findall(r"(?<=\.)\d+(?=\.|$)", name))
            table.setdefault(re.sub(r"\.\d+(?=\.|$)", ".#", name), {})[indices] = shape
        return table

    def find_slots(self):
        """Numbers that no configuration changes are part of the name."""
        counted = {}
        for sample, table in self.tables:
            seen = {}
            for template, entries in table.items():
                parts = template.split("#")
                for indices in entries:
                    for slot, index in enumerate(indices):
                        prefix = "#".join(parts[:slot + 1])
                        seen[prefix] = max(seen.get(prefix, 0), index + 1)
            for prefix, count in seen.items():
                counted.setdefault(prefix, []).append((sample, count))
        self.slots = {prefix: seen for prefix, seen in counted.items() if len({count for _, count in seen}) > 1}
        self.tables = [(sample, self.literal(table)) for sample, table in self.tables]

    def literal(self, table):
        out = {}
        for template, entries in table.items():
            parts = template.split("#")
            for indices, shape in entries.items():
                name, kept, prefix = parts[0], [], parts[0]
                for index, part in zip(indices, parts[1:]):
                    if prefix in self.slots:
                        kept.append(index)
                        name += "#" + part
                    else:
                        name += str(index) + part
                    prefix += "#" + part
                out.setdefault(name, {})[tuple(kept)] = shape
        return out

    def keys_behind(self, what):
        """The entries that change a number alone; `what`(sample) may be None."""
        behind = set()
        for one, other, key in self.samples.alone:
            if key in self.samples.matters and None not in (a := (what(one), what(other))) and a[0] != a[1]:
                behind.add(key)
        return sorted(behind)

    def formula(self, numbers):
        """`numbers`: sample: value"""
        by_id = {id(sample): value for sample, value in numbers}
        keys = self.keys_behind(lambda sample: by_id.get(id(sample)))
        if len(keys) > 6:
            return None
        # Some have another meaning where they are null, or a switch is not as usual.
        ways = [(key, None, at(self.samples.base.config, key)) for key in keys if at(self.samples.base.config, key) and any(not at(sample.config, key) for sample, _ in numbers)]
        ways += [(key, at(self.samples.base.config, key), None if at(self.samples.base.config, key) is None else True) for key in keys if at(self.samples.base.config, key) in (None, True, False)]
        for pinned in itertools.chain([()], itertools.combinations(ways, 1), itertools.combinations(ways, 2)):
            points = [(sample.config, value) for sample, value in numbers if not violated(pinned, sample.config)]
            found = fit(points, [key for key in keys if not any(key == one and (value is not None or usual is None) for one, value, usual in pinned)]) if points else None
            if found:
                self.pinned.update(pinned)
                return found
        return None

    def valid(self, config):
        return not violated(self.pinned, config)

    def make_literals(self):
        def get(config, key, i):
            return at(config, key)
        for key in self.keys:
            values = [at(sample.config, key) for sample in self.samples.all]
            kinds_seen = {type(value) for value in values}
            if list in kinds_seen:
                inside = {x for value in values if isinstance(value, list) for x in value if isinstance(x, (str, int))}
                for x in inside:
                    if isinstance(x, str) or isinstance(x, bool) or x < 64:
                        yield "%s[i]=%s" % (key, json.dumps(x).strip('"')), (lambda c, i, n, k=key, x=x: isinstance(at(c, k), list) and i is not None and i < len(at(c, k)) and at(c, k)[i] == x)
                if kinds_seen <= {list, type(None)}:
                    yield key + "~i", lambda c, i, n, k=key: i is not None and i in (at(c, k) or [])
                    yield key + "!~i", lambda c, i, n, k=key: i is not None and i not in (at(c, k) or [])
            if str in kinds_seen:
                for x in {value for value in values if isinstance(value, str)}:
                    yield "%s=%s" % (key, x), lambda c, i, n, k=key, x=x: at(c, k) == x
                    yield "%s!=%s" % (key, x), lambda c, i, n, k=key, x=x: at(c, k) != x
            if kinds_seen & {int, bool, type(None)} and not kinds_seen & {list, str, float}:
                yield key, lambda c, i, n, k=key: bool(at(c, k))
                yield "!" + key, lambda c, i, n, k=key: not at(c, k)
            if int in kinds_seen and not kinds_seen & {list, str, float}:
                yield key + ">1", lambda c, i, n, k=key: (at(c, k) or 0) > 1
                yield "i>=" + key, lambda c, i, n, k=key: i is not None and i >= (at(c, k) or 0)
                yield "i<" + key, lambda c, i, n, k=key: i is not None and i < (at(c, k) or 0)
                yield "i%%%s=0" % key, lambda c, i, n, k=key: bool(at(c, k)) and i is not None and i % at(c, k) == 0
                yield "i%%%s!=0" % key, lambda c, i, n, k=key: bool(at(c, k)) and i is not None and i % at(c, k) != 0
                yield "(i+1)%%%s=0" % key, lambda c, i, n, k=key: bool(at(c, k)) and i is not None and (i + 1) % at(c, k) == 0
                yield "(i+1)%%%s!=0" % key, lambda c, i, n, k=key: bool(at(c, k)) and i is not None and (i + 1) % at(c, k) != 0
                for other in self.keys:
                    if other != key and "offset" in other:
                        yield "i%%%s=%s" % (key, other), lambda c, i, n, k=key, o=other: bool(at(c, k)) and i is not None and i % at(c, k) == at(c, o)
                        yield "i%%%s!=%s" % (key, other), lambda c, i, n, k=key, o=other: bool(at(c, k)) and i is not None and i % at(c, k) != at(c, o)
        first = {key: at(self.samples.base.config, key) for key in self.keys}
        for one, other in itertools.combinations([key for key, value in first.items() if isinstance(value, int) and value > 1], 2):
            if first[one] == first[other]:
                yield "%s=%s" % (one, other), lambda c, i, n, k=one, o=other: at(c, k) == at(c, o)
                yield "%s!=%s" % (one, other), lambda c, i, n, k=one, o=other: at(c, k) != at(c, o)
        yield "i>=1", lambda c, i, n: i is not None and i >= 1
        yield "i<1", lambda c, i, n: i is not None and i < 1
        yield "i%2=0", lambda c, i, n: i is not None and i % 2 == 0
        yield "i%2!=0", lambda c, i, n: i is not None and i % 2 != 0

    def explain(self):
        for prefix, seen in self.slots.items():
            expression = self.formula(seen)
            if expression is None:
                raise Unexplained("what counts %s" % prefix)
            self.counts[prefix] = expression
        later = sorted({template for _, table in self.tables for template in table})
        # What is there where something else is not is tried when that is known.
        while later:
            failed = []
            for template in later:
                try:
                    self.lines.append(self.line(template))
                except Unexplained as why:
                    failed.append((template, why))
            if len(failed) == len(later):
                raise failed[0][1]
            later = [template for template, _ in failed]
            for together in sorted({tuple(literals) for _, _, literals in self.lines if len(literals) > 1}):
                name = "!(%s)" % ";".join(together)
                known = dict(self.literals)
                if later and name not in known and "(" not in "".join(together).replace("(i+1)", ""):
                    self.literals.append((name, lambda c, i, n, tests=[known[one] for one in together]: i is not None and not all(test(c, i, n) for test in tests)))

    def line(self, template):
        parts = template.split("#")
        prefixes = ["#".join(parts[:slot + 1]) for slot in range(len(parts) - 1)]
        shapes, points = [], []
        for sample, table in self.tables:
            entries = table.get(template, {})
            counts = [value_of(self.counts[prefix], sample.config) for prefix in prefixes]
            if None in counts:
                continue
            if len(set(entries.values())) > 1:
                raise Unexplained("shapes of %s differ by layer" % template)
            if entries:
                shapes.append((sample, next(iter(entries.values()))))
            outer = range(counts[0]) if counts else [None]
            inner = set(itertools.product(*(range(count) for count in counts[1:])))
            for i in outer:
                here = {indices[1:] for indices in entries if i is None or indices[0] == i}
                if here and here != inner:
                    raise Unexplained("numbers in %s" % template)
                if inner:
                    points.append((sample.config, i, counts[0] if counts else 0, bool(here)))
            if entries and counts and max(indices[0] for indices in entries) >= counts[0]:
                raise Unexplained("layers of %s" % template)
        if len({len(shape) for _, shape in shapes}) != 1:
            raise Unexplained("rank of %s" % template)
        dims = []
        for dim in range(len(shapes[0][1])):
            dims.append(self.formula([(sample, shape[dim]) for sample, shape in shapes]) or "?")
        name = parts[0] + "".join("{%s}%s" % (self.counts[prefix], part) for prefix, part in zip(prefixes, parts[1:]))
        return name, dims, self.condition(template, points)

    def condition(self, template, points):
        present = [p for p in points if p[3]]
        absent = [p for p in points if not p[3]]
        if not absent:
            return []
        usable = [(text, test) for text, test in self.literals if all(test(c, i, n) for c, i, n, _ in present)]
        chosen = []
        while absent:
            best, kept = None, absent
            for text, test in usable:
                left = [p for p in absent if test(p[0], p[1], p[2])]
                if len(left) < len(kept):
                    best, kept = (text, test), left
            if best is None or len(chosen) == 4:
                raise Unexplained("when %s is there" % template)
            chosen.append(best)
            absent = kept
        for literal in chosen[:-1]:  # one that the later ones make needless
            rest = [other for other in chosen if other is not literal]
            if not any(all(test(p[0], p[1], p[2]) for _, test in rest) for p in points if not p[3]):
                chosen = rest
        return sorted(text for text, _ in chosen)

    def predict(self, config):
        tests, out = dict(self.literals), {}
        for name, dims, literals in self.lines:
            slots = re.findall(r"\{(.*?)\}", name)
            counts = [value_of(slot, config) for slot in slots]
            if None in counts:
                return None
            shape = tuple(None if dim == "?" else value_of(dim, config) for dim in dims)
            for indices in itertools.product(*(range(count) for count in counts)):
                i = indices[0] if indices else None
                if all(tests[literal](config, i, counts[0] if counts else 0) for literal in literals):
                    numbers = iter(indices)
                    out[re.sub(r"\{.*?\}", lambda _: str(next(numbers)), name)] = shape
        return out

    def agrees(self, sample):
        tensors, wanted = getattr(sample, self.spelling), self.predict(sample.config)
        if wanted is None or not self.valid(sample.config):
            return None
        for name in tensors.keys() | wanted.keys():
            if name not in tensors or name not in wanted or len(wanted[name]) != len(tensors[name]):
                return name
            if any(x is not None and x != y for x, y in zip(wanted[name], tensors[name])):
                return name
        return None


def value_of(expression, config):
    """None where a division does not come out even."""
    total = 0
    for sign, part in re.findall(r"([+-]?) ?((?:[\w.]+(?: [*/] )?)+)", expression):
        value = 1
        for operator, factor in re.findall(r"([*/]?) ?([\w.]+)", part):
            x = int(factor) if factor.isdigit() else number(at(config, factor))
            if operator == "/":
                if not x or value % x:
                    return None
                value //= x
            else:
                value *= x
        total += -value if sign == "-" else value
    return total


def explain(config_class, model_class):
    """The facts of a class, or Unexplained."""
    family = Family(config_class, model_class)
    samples = Samples(family)
    for attempt in range(ROUNDS):
        spellings = [Explanation(samples, "saved")]
        if any(sample.saved != sample.memory for sample in samples.all):
            try:
                spellings.append(Explanation(samples, "memory"))
            except Unexplained:
                pass
        fresh = samples.several(random.Random(100 + attempt), SEVERAL)
        wrong = [(sample, name) for sample in fresh for one in spellings if (name := one.agrees(sample))]
        if not wrong:
            break
    else:
        raise Unexplained("another configuration than those tried has other tensors: %s" % wrong[0][1])
    for one in spellings:
        for sample in samples.all:
            if name := one.agrees(sample):
                raise Unexplained("its own configurations: %s" % name)
    return family, samples, spellings, entries(family, samples, spellings)


def entries(family, samples, spellings):
    """What stands for an entry that a configuration does not state, and the values of those that may not differ."""
    used = set()
    for one in spellings:
        text = " ".join("%s %s %s" % (name, " ".join(dims), " ".join(literals)) for name, dims, literals in one.lines)
        used |= {key for key in samples.matters if re.search(r"(?<![\w.])%s(?![\w.])" % re.escape(key), text)}
    keys, fixed = {}, {}
    for key in sorted(used):
        *parts, last = key.split(".")
        points, lists = [], False
        for sample in samples.all[:60]:
            stated = copy.deepcopy(sample.stated)
            inner = at(stated, ".".join(parts)) if parts else stated
            for name in Samples.with_lists(sample, key, 1) if LAYERS.search(last) else [key]:
                inner.pop(name.split(".")[-1], None)
            try:
                value = at(plain(family.config_class.from_dict(stated)), key)
            except Exception:
                continue
            points.append((sample, value))
        owner = family.owners[".".join(parts) + "." if parts else ""]
        names = [alias for alias, inner in owner.attribute_map.items() if inner == last]
        values = {json.dumps(value) for _, value in points}
        default = None
        if any(isinstance(value, (str, list, float)) for _, value in points):
            default = json.loads(values.pop()) if len(values) == 1 else None
        elif points:
            one = Explanation.__new__(Explanation)
            one.samples, one.pinned = samples, set()
            default = one.formula([(sample, number(value)) for sample, value in points])
            if default is not None and default.lstrip("-").isdigit():
                default = int(default)
        try:
            nothing = at(plain(family.config_class.from_dict(changed(samples.base.stated, {key: None}))), key) is None
        except Exception:
            nothing = False
        keys[key] = [default, names, nothing and default not in (None, 0)]
    for key, value in samples.refused.items():
        fixed[key] = [value]
    pinned = set().union(*(one.pinned for one in spellings))
    for key, value, usual in sorted(pinned, key=str):
        fixed[key] = "set" if value is None and usual is not None else [value]
    for key in samples.matters - used - fixed.keys():
        fixed[key] = [at(samples.base.config, key)]
    for prefix in family.owners:
        if prefix:
            fixed[prefix + "model_type"] = [at(samples.base.config, prefix + "model_type")]
    for key in used - fixed.keys():
        seen = {json.dumps(at(sample.config, key)) for sample in samples.all}
        if any(value.startswith('"') for value in seen):
            fixed[key] = sorted(json.loads(value) for value in seen if value.startswith('"'))
    return keys, fixed


def late(*_):
    raise TimeoutError


@contextlib.contextmanager
def within(seconds):
    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


# ---------------------------------------------------------------------------------------------------- what is written

def fitting(expected, shape):
    return len(expected) == len(shape) and all(x in (None, y) for x, y in zip(expected, shape))


def further(family, samples, one, model_class):
    """Another class of the same configuration: "=" where it has the same tensors, else "-" where its names lack the prefix, and the tensors that it has besides. None where that is not all."""
    other = Family(family.config_class, model_class)
    prefix = family.prefix + "."
    numbers = random.Random(3)
    tried = []
    for sample in [samples.base] + numbers.sample(samples.all, min(6, len(samples.all))):
        for labels in (2, 5):
            built = other.build(changed(sample.stated, {"num_labels": labels}))
            expected = one.predict(sample.config) if one.valid(sample.config) else None
            if built and expected is not None:
                tried.append((built, expected))
    if len(tried) < 4:
        return None
    if all(expected.keys() == built.saved.keys() and all(fitting(shape, built.saved[name]) for name, shape in expected.items()) for built, expected in tried):
        return ["="]
    tried = [(built, {name: shape for name, shape in expected.items() if name.startswith(prefix)}) for built, expected in tried]
    bare = not any(name.startswith(prefix) for name in tried[0][0].saved)
    texts = {dim for _, dims, _ in one.lines for dim in dims if dim != "?"} | {"num_labels"}
    extra = {}
    for built, expected in tried:
        names = {name[len(prefix):] if bare else name: shape for name, shape in expected.items()}
        for name, shape in names.items():
            if name not in built.saved or not fitting(shape, built.saved[name]):
                return None
        for name in built.saved.keys() - names.keys():
            extra.setdefault(name, []).append((built.config, built.saved[name]))
    lines = []
    for name, found in sorted(extra.items()):
        if len(found) != len(tried) or re.search(r"[.]\d+[.]", name):
            return None
        dims = []
        for dim in range(len(found[0][1])):
            fits = [text for text in sorted(texts, key=lambda text: (len(text), text)) if all(value_of(text, config) == shape[dim] for config, shape in found)]
            dims.append(fits[0] if fits else "?")
        lines.append("%s|%s|" % (name, ",".join(dims)))
    return ["-" if bare else "+", *lines]


def facts(config_class, models):
    """All classes of one configuration, by the first that can be explained."""
    why = {}
    for model_class in models:
        try:
            with within(SECONDS):
                family, samples, spellings, (keys, fixed) = explain(config_class, model_class)
        except (Exception, TimeoutError) as error:
            why[model_class.__name__] = "%s: %s" % (type(error).__name__, str(error)[:160])
            if len(why) == 2:
                break
            continue
        found = {"type": config_class.model_type, "class": model_class.__name__, "prefix": family.prefix, "keys": keys, "fixed": fixed, "ignored": family.ignored, "tied": sorted(family.tied),
                 "spellings": [["%s|%s|%s" % (n, ",".join(d), "&".join(c)) for n, d, c in one.lines] for one in spellings], "classes": {},
                 "configurations": len(samples.all)}
        for other in models:
            if other is not model_class:
                try:
                    with within(SECONDS):
                        lines = further(family, samples, spellings[0], other)
                except (Exception, TimeoutError) as error:
                    lines = None
                if lines:
                    found["classes"][other.__name__] = lines
        return found
    return {"type": config_class.model_type, "left": why}


def written(line, texts):
    """A line in the words of core/engine/model_table.h. `texts`: entries that are no numbers."""
    name, dims, conditions = line.split("|")
    def literal(text):
        if text.startswith("!("):
            return "!(%s)" % ";".join(literal(part) for part in text[2:-1].split(";"))
        if found := re.fullmatch(r"([\w.]+)\[i\]=(.*)", text):
            return "%s[i] is %s" % found.groups()
        if found := re.fullmatch(r"([\w.]+)(!?)~i", text):
            return "i %sin %s" % ("not" if found[2] else "", found[1])
        found = re.fullmatch(r"([\w.]+)(!?)=(.*)", text)
        return "%s is%s %s" % (found[1], "not" if found[2] else "", found[3]) if found and found[1] in texts else text
    line = "%s|%s|%s" % (name, dims, "&".join(literal(one) for one in conditions.split("&") if one))
    return line.replace(" * ", "*").replace(" / ", "/").replace(" + ", "+")


def table(files):
    """What resources/transformers/models.json holds, of the facts that were found."""
    numbered, models = {}, {}
    def number_of(line):
        return numbered.setdefault(line, len(numbered))
    found_last = {found["type"]: found for file in files for found in map(json.loads, open(file)) if "left" not in found}
    for facts_found in sorted(found_last.values(), key=lambda found: found["type"]):
        if any("?" in dim for line in facts_found["spellings"][0] for dim in line.split("|")[:1]):
            continue
        # A configuration of an older release may call a size otherwise: what is not stated is not known, but for switches.
        keys = {key: [None if isinstance(standard, int) and standard > 1 else standard, *rest] for key, (standard, *rest) in facts_found["keys"].items()}
        texts = {key for key in keys if any(isinstance(value, str) for value in facts_found["fixed"].get(key, []) if facts_found["fixed"][key] != "set")}
        model = {"class": facts_found["class"], "prefix": facts_found["prefix"]}
        for key in re.findall(r"[a-z]\w*(?:[.]\w+)+|[a-z]\w*", " ".join(str(standard) for standard, _, _ in keys.values() if isinstance(standard, str))):
            keys.setdefault(key, [None, [], False])
        model["numbers"] = {key: standard.replace(" ", "") if isinstance(standard, str) and key not in texts and not aliases else
                            [standard.replace(" ", "") if isinstance(standard, str) and key not in texts else standard, *aliases] if aliases or isinstance(standard, list) else standard
                            for key, (standard, aliases, _) in sorted(keys.items())}
        only = {key: value for key, value in sorted(facts_found["fixed"].items()) if not (value == "set" and isinstance(keys[key][0], str))}
        model.update({key: value for key, value in (("only", only), ("ignored", facts_found["ignored"] + sorted({re.sub(r"\.\d+(?=\.)", "[.][0-9]+", "^%s$" % re.escape(name).replace("\\.", ".")) for name in facts_found["tied"] if "lm_head" not in name}))) if value})
        model["tensors"] = [[number_of(written(line, texts)) for line in spelling] for spelling in facts_found["spellings"]]
        model["classes"] = {name: [lines[0], *(written(line, texts) for line in lines[1:])] for name, lines in sorted(facts_found["classes"].items())}
        if any("num_labels" in line for lines in model["classes"].values() for line in lines):
            model["numbers"].setdefault("num_labels", 2)
        models[facts_found["type"]] = model
    return {"source": "transformers %s, by tests/peers/make_transformers_models.py" % transformers.__version__, "lines": list(numbered), "models": models}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--share", default="0/1", help="N/M: every Mth family, beginning with the Nth")
    parser.add_argument("--table", nargs="+", metavar="FACTS", help="write the table to --out, of files of facts that were written before")
    parser.add_argument("types", nargs="*")
    asked = parser.parse_args()
    if asked.table:
        whole = table(asked.table)
        lines = ",\n".join(json.dumps(line) for line in whole["lines"])
        models = ",\n".join("%s:%s" % (json.dumps(name), json.dumps(model, separators=(",", ":"))) for name, model in whole["models"].items())
        text = '{"source":%s,\n"lines":[\n%s\n],\n"models":{\n%s\n}}' % (json.dumps(whole["source"]), lines, models)
        with open(asked.out, "w") as out:
            out.write(text + "\n")
        return
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    record_reads()
    torch.set_num_threads(1)
    share, shares = map(int, asked.share.split("/"))
    by_config = {}
    for config_class, model_class in classes(asked.types):
        by_config.setdefault(config_class, []).append(model_class)
    order = sorted(by_config, key=lambda config: (asked.types.index(config.model_type) if asked.types else 0, config.model_type))
    with open(asked.out, "a+") as out:
        out.seek(0)
        done = {json.loads(line)["type"] for line in out}
        for config_class in order[share::shares]:
            if config_class.model_type in done:
                continue
            found = facts(config_class, by_config[config_class])
            out.write(json.dumps(found) + "\n")
            out.flush()
            print(config_class.model_type, found.get("left") or "%s: %d lines of %d configurations, %s" % (
                found["class"], len(found["spellings"][0]), found["configurations"], sorted(found["classes"])), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
