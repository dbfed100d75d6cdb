"""The own loaders of verl and SkyRL, out of their packages without what else these need: modules that are not installed, and that loading does not
use, are empty."""
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

# What verl and skyrl import at their top for training and inference.
UNUSED = {"PIL", "cloudpathlib", "codetiming", "datasets", "flash_attn", "hydra", "jaxtyping", "loguru", "omegaconf", "orjson", "pandas",
          "peft", "ray", "skyrl_gym", "tensordict", "torchdata", "verl.trainer", "verl.utils.dataset", "verl.workers"}


class Empty(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__class_getitem__": classmethod(lambda cls, item: cls)})
        made.__init__ = made.__call__ = lambda self, *args, **words: None
        setattr(self, name, made)
        return made


class EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        unused = any((name + ".").startswith(one + ".") for one in UNUSED)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if unused else None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


def bare(package, names):
    """The packages without what their __init__ imports."""
    root = importlib.util.find_spec(package).submodule_search_locations[0].removesuffix(package)
    for name in names:
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = [root + name.replace(".", "/")]


def make_ready():
    sys.meta_path.insert(0, EmptyModules())
    bare("verl", ["verl", "verl.utils", "verl.utils.checkpoint"])
    bare("skyrl", ["skyrl", "skyrl.backends", "skyrl.backends.skyrl_train", "skyrl.backends.skyrl_train.distributed", "skyrl.train"])


def load(loader, path, model, optimizer, scheduler):
    """As a run of it does on each rank."""
    if loader == "verl":
        from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
        FSDPCheckpointManager(model, optimizer, scheduler, processing_class=object()).load_checkpoint(path)
        return
    import torch.distributed as dist
    from skyrl.backends.skyrl_train.distributed.fsdp_strategy import FSDPStrategy
    strategy = FSDPStrategy(types.SimpleNamespace(cpu_offload=False, fsdp_size=-1))
    strategy.world_size = dist.get_world_size()
    strategy.load_checkpoint(model, path, optimizer, scheduler)
