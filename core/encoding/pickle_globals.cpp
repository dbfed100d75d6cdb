#include "encoding/pickle_globals.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include <fmt/format.h>

#include "base/rule.h"
#include "encoding/torch_tensor.h"

namespace shardscope {

namespace {

struct Pair {
    std::string_view module, name;
};

// As torch/_weights_only_unpickler.py lists them; dtypes, storages and rebuild functions are dealt with
// apart.
constexpr std::array kWeights{
    Pair{"collections", "OrderedDict"},
    Pair{"collections", "Counter"},
    Pair{"torch.nn.parameter", "Parameter"},
    Pair{"torch.nn.parameter", "Buffer"},
    Pair{"torch.serialization", "_get_layout"},
    Pair{"torch", "Size"},
    Pair{"torch", "Tensor"},
    Pair{"torch", "device"},
    Pair{"torch", "per_tensor_affine"},
    Pair{"torch", "per_tensor_symmetric"},
    Pair{"torch", "per_channel_affine"},
    Pair{"torch", "per_channel_symmetric"},
    Pair{"torch", "per_channel_affine_float_qparams"},
    Pair{"torch._tensor", "_rebuild_from_type_v2"},
    Pair{"_codecs", "encode"},
    Pair{"builtins", "bytearray"},
    Pair{"builtins", "set"},
    Pair{"builtins", "complex"},
};
constexpr std::array kRebuild{
    std::string_view("_rebuild_parameter"),
    std::string_view("_rebuild_parameter_with_state"),
    std::string_view("_rebuild_qtensor"),
    std::string_view("_rebuild_tensor"),
    std::string_view("_rebuild_tensor_v2"),
    std::string_view("_rebuild_tensor_v3"),
    std::string_view("_rebuild_sparse_tensor"),
    std::string_view("_rebuild_meta_tensor_no_storage"),
    std::string_view("_rebuild_nested_tensor"),
    std::string_view("_rebuild_wrapper_subclass"),
    std::string_view("_rebuild_device_tensor_from_numpy"),
    std::string_view("_rebuild_device_tensor_from_cpu_tensor"),
};
constexpr std::array kData{
    Pair{"builtins", "bytes"},
    Pair{"builtins", "frozenset"},
    Pair{"builtins", "list"},
    Pair{"builtins", "tuple"},
    Pair{"builtins", "dict"},
    Pair{"builtins", "int"},
    Pair{"builtins", "float"},
    Pair{"builtins", "str"},
    Pair{"builtins", "bool"},
    Pair{"builtins", "range"},
    Pair{"builtins", "slice"},
    Pair{"builtins", "object"},
    Pair{"collections", "deque"},
    Pair{"collections", "defaultdict"},
    Pair{"copyreg", "_reconstructor"},
    Pair{"datetime", "datetime"},
    Pair{"datetime", "date"},
    Pair{"datetime", "time"},
    Pair{"datetime", "timedelta"},
    Pair{"datetime", "timezone"},
    Pair{"decimal", "Decimal"},
    Pair{"fractions", "Fraction"},
    Pair{"uuid", "UUID"},
    Pair{"argparse", "Namespace"},
    Pair{"types", "SimpleNamespace"},
    Pair{"numpy", "dtype"},
    Pair{"numpy", "ndarray"},
    Pair{"numpy.core.multiarray", "_reconstruct"},
    Pair{"numpy.core.multiarray", "scalar"},
    Pair{"numpy._core.multiarray", "_reconstruct"},
    Pair{"numpy._core.multiarray", "scalar"},
    Pair{"numpy._core.numeric", "_frombuffer"},
    Pair{"numpy.core.numeric", "_frombuffer"},
    Pair{"torch._tensor", "_rebuild_from_type"},
    Pair{"torch", "layout"},
    Pair{"torch", "memory_format"},
    Pair{"torch._utils", "_rebuild_sparse_csr_tensor"},  // torch 1.13 and older
};
// Records of torch's own that say how a tensor is cut: plain fields, or what torch itself adds to the safe
// globals of torch.load (torch/distributed/tensor/__init__.py, torch/nested/_internal/nested_tensor.py).
constexpr std::array kTorchRecords{
    Pair{"torch.distributed.fsdp.flat_param", "_ShardParamInfo"},
    Pair{"torch.distributed.fsdp._flat_param", "_ShardParamInfo"},
    Pair{"torch.distributed._shard.metadata", "ShardMetadata"},
    Pair{"torch.distributed._shard.sharded_tensor.metadata", "ShardedTensorMetadata"},
    Pair{"torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"},
    Pair{"torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING"},
    Pair{"torch.distributed._shard.sharded_tensor.shard", "Shard"},
    Pair{"torch.distributed._shard.sharded_tensor.api", "ShardedTensor"},
    Pair{"torch.distributed._shard.sharded_tensor.api", "ShardedTensor.ProcessGroupState"},
    Pair{"torch.distributed._shard.sharding_spec.api", "EnumerableShardingSpec"},
    Pair{"torch.distributed._shard.sharding_spec.chunk_sharding_spec", "ChunkShardingSpec"},
    Pair{"torch.distributed.remote_device", "_remote_device"},
    Pair{"torch.distributed._mesh_layout", "_FlatLayout"},
    Pair{"torch.distributed._mesh_layout", "_MeshLayout"},
    Pair{"torch.distributed.device_mesh", "DeviceMesh"},
    Pair{"torch.nested._internal.nested_tensor", "NestedTensor"},
    Pair{"torch.nested._internal.nested_tensor", "_rebuild_njt"},
};
// Plain data classes and enumerations that frameworks store with a checkpoint's metadata: the save plans of
// torch.distributed.checkpoint (planner.py), DeepSpeed's, and Megatron-Core's
// (dist_checkpointing/strategies/torch.py), io.BytesIO of Transformer Engine's extra states, and what
// Megatron's arguments hold (core/safe_globals.py).
constexpr std::array kFrameworkRecords{
    Pair{"torch.distributed.checkpoint.planner", "SavePlan"},
    Pair{"torch.distributed.checkpoint.planner", "WriteItem"},
    Pair{"torch.distributed.checkpoint.planner", "WriteItemType"},
    Pair{"torch.distributed.checkpoint.planner", "TensorWriteData"},
    Pair{"torch.distributed.checkpoint.planner", "BytesIOWriteData"},
    Pair{"torch.distributed.checkpoint.metadata", "Metadata"},
    Pair{"torch.distributed.checkpoint.metadata", "MetadataIndex"},
    Pair{"torch.distributed.checkpoint.metadata", "ChunkStorageMetadata"},
    Pair{"torch.distributed.checkpoint.metadata", "TensorStorageMetadata"},
    Pair{"torch.distributed.checkpoint.metadata", "BytesStorageMetadata"},
    Pair{"torch.distributed.checkpoint.metadata", "TensorProperties"},
    Pair{"torch.distributed.checkpoint.metadata", "StorageMeta"},
    Pair{"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    Pair{"olmo_core.distributed.checkpoint.filesystem", "_StorageInfo"},
    Pair{"megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata"},
    Pair{"megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan"},
    Pair{"megatron.core.dist_checkpointing.mapping", "ShardedObject"},
    Pair{"megatron.core.dist_checkpointing.mapping", "ShardedTensor"},
    Pair{"deepspeed.runtime.zero.config", "ZeroStageEnum"},
    Pair{"deepspeed.runtime.fp16.loss_scaler", "LossScaler"},
    Pair{"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"},
    Pair{"deepspeed.utils.tensor_fragment", "fragment_address"},
    Pair{"deepspeed.checkpoint.universal_checkpoint", "SubparamShape"},
    Pair{"_io", "BytesIO"},
    Pair{"io", "BytesIO"},
};
// What training_args.bin of a Hugging Face Trainer holds: data classes and enumerations of transformers and
// accelerate, and the settings of the process, all stored as plain fields (transformers/training_args.py,
// trainer_utils.py, accelerate/state.py, utils/dataclasses.py; transformers 4.30 to 5.23).
constexpr std::array kTrainerRecords{
    Pair{"transformers.training_args", "TrainingArguments"},
    Pair{"transformers.training_args", "OptimizerNames"},
    Pair{"transformers.training_args", "ParallelMode"},
    Pair{"transformers.training_args_seq2seq", "Seq2SeqTrainingArguments"},
    Pair{"transformers.trainer_utils", "EvaluationStrategy"},
    Pair{"transformers.trainer_utils", "FSDPOption"},
    Pair{"transformers.trainer_utils", "HubStrategy"},
    Pair{"transformers.trainer_utils", "IntervalStrategy"},
    Pair{"transformers.trainer_utils", "SaveStrategy"},
    Pair{"transformers.trainer_utils", "SchedulerType"},
    Pair{"transformers.trainer_utils", "ShardedDDPOption"},
    Pair{"transformers.trainer_pt_utils", "AcceleratorConfig"},
    Pair{"transformers.debug_utils", "DebugOption"},
    Pair{"transformers.deepspeed", "HfDeepSpeedConfig"},
    Pair{"transformers.deepspeed", "HfTrainerDeepSpeedConfig"},
    Pair{"transformers.integrations.deepspeed", "HfDeepSpeedConfig"},
    Pair{"transformers.integrations.deepspeed", "HfTrainerDeepSpeedConfig"},
    Pair{"accelerate.state", "PartialState"},
    Pair{"accelerate.utils.dataclasses", "DeepSpeedPlugin"},
    Pair{"accelerate.utils.dataclasses", "DistributedType"},
    Pair{"accelerate.utils.dataclasses", "DynamoBackend"},
    Pair{"accelerate.utils.dataclasses", "FullyShardedDataParallelPlugin"},
    Pair{"accelerate.utils.dataclasses", "GradientAccumulationPlugin"},
    Pair{"accelerate.utils.deepspeed", "HfDeepSpeedConfig"},
};
// The same of DTensor, which moved from torch.distributed._tensor in torch 2.5.
constexpr std::array kDTensorRecords{
    Pair{"", "DTensor"},
    Pair{".api", "DTensor"},
    Pair{"._api", "DTensor"},
    Pair{".placement_types", "Shard"},
    Pair{".placement_types", "Replicate"},
    Pair{".placement_types", "Partial"},
    Pair{".placement_types", "_Partial"},
    Pair{".placement_types", "_StridedShard"},
    Pair{".placement_types", "TensorMeta"},
    Pair{".placement_types", "DTensorSpec"},
    Pair{"._dtensor_spec", "DTensorSpec"},
    Pair{"._dtensor_spec", "TensorMeta"},
    Pair{"._dtensor_spec", "ShardOrderEntry"},
    Pair{".device_mesh", "DeviceMesh"},
};

// Modules, with all below them, whose functions run commands, code or files of the machine.
constexpr std::array kDangerousModules{
    std::string_view("os"),
    std::string_view("posix"),
    std::string_view("nt"),
    std::string_view("posixpath"),
    std::string_view("ntpath"),
    std::string_view("subprocess"),
    std::string_view("sys"),
    std::string_view("runpy"),
    std::string_view("pty"),
    std::string_view("shutil"),
    std::string_view("socket"),
    std::string_view("importlib"),
    std::string_view("ctypes"),
    std::string_view("_ctypes"),
    std::string_view("code"),
    std::string_view("codeop"),
    std::string_view("commands"),
    std::string_view("multiprocessing"),
    std::string_view("asyncio"),
    std::string_view("pickle"),
    std::string_view("_pickle"),
    std::string_view("marshal"),
    std::string_view("webbrowser"),
    std::string_view("pdb"),
    std::string_view("bdb"),
    std::string_view("timeit"),
    std::string_view("cProfile"),
    std::string_view("profile"),
    std::string_view("trace"),
    std::string_view("pip"),
    std::string_view("ensurepip"),
    std::string_view("venv"),
    std::string_view("signal"),
    std::string_view("threading"),
    std::string_view("http"),
    std::string_view("urllib"),
    std::string_view("requests"),
    std::string_view("aiohttp"),
    std::string_view("httplib"),
    std::string_view("types"),
    std::string_view("operator"),
    std::string_view("_operator"),
    std::string_view("functools"),
    std::string_view("torch.hub"),
    std::string_view("torch.jit"),
    std::string_view("torch._inductor"),
    std::string_view("torch.utils.cpp_extension"),
    std::string_view("<dynamic>"),
};
constexpr std::array kDangerousBuiltins{
    std::string_view("eval"),       std::string_view("exec"),     std::string_view("compile"),
    std::string_view("__import__"), std::string_view("open"),     std::string_view("input"),
    std::string_view("globals"),    std::string_view("locals"),   std::string_view("vars"),
    std::string_view("apply"),      std::string_view("execfile"), std::string_view("breakpoint"),
    std::string_view("map"),        std::string_view("filter"),   std::string_view("setattr"),
    std::string_view("delattr"),
};

template <class Table>
bool holds(const Table& table, std::string_view module, std::string_view name) {
    return std::any_of(table.begin(), table.end(),
                       [&](const Pair& p) { return p.module == module && p.name == name; });
}

bool isDTensorRecord(std::string_view module, std::string_view name) {
    for (std::string_view home : {"torch.distributed.tensor", "torch.distributed._tensor"}) {
        if (module.starts_with(home) && holds(kDTensorRecords, module.substr(home.size()), name)) return true;
    }
    return false;
}

bool isInModule(std::string_view module, std::string_view parent) {
    return module == parent ||
           (module.size() > parent.size() && module.starts_with(parent) && module[parent.size()] == '.');
}

// Names of dtypes without tensors of their own (torch 2.6 and later): torchao's subclasses state them.
bool isNarrowInteger(std::string_view name) {
    if (name.starts_with('u')) name.remove_prefix(1);
    return name.size() == 4 && name.starts_with("int") && name[3] >= '1' && name[3] <= '7';
}

}  // namespace

GlobalKind classifyGlobal(std::string_view module, std::string_view name) {
    if (holds(kWeights, module, name)) return GlobalKind::weights;
    if (module == "torch" || module == "torch.storage" || module == "torch.cuda") {
        if (dtypeFromTorchGlobal(module, name) || dtypeFromStorageClass(name) || name == "UntypedStorage" ||
            name == "TypedStorage" || (module == "torch" && isNarrowInteger(name))) {
            return GlobalKind::weights;
        }
        if (module != "torch.storage" && name.ends_with("Tensor") && name.find('.') == name.npos)
            return GlobalKind::weights;
    }
    if (module == "torch._utils" && std::find(kRebuild.begin(), kRebuild.end(), name) != kRebuild.end()) {
        return GlobalKind::weights;
    }
    if (holds(kData, module, name) || holds(kTorchRecords, module, name) ||
        holds(kFrameworkRecords, module, name) || holds(kTrainerRecords, module, name) ||
        isDTensorRecord(module, name))
        return GlobalKind::data;
    // Enumerations of Megatron-Core, such as megatron.core.transformer.enums.AttnBackend.
    if (module.starts_with("megatron.core.") && module.ends_with(".enums") && name.find('.') == name.npos)
        return GlobalKind::data;
    if (module.starts_with("pathlib") && name.ends_with("Path") && name.find('.') == name.npos)
        return GlobalKind::data;
    if (module == "builtins" &&
        std::find(kDangerousBuiltins.begin(), kDangerousBuiltins.end(), name) != kDangerousBuiltins.end()) {
        return GlobalKind::dangerous;
    }
    for (std::string_view dangerous : kDangerousModules) {
        if (isInModule(module, dangerous)) return GlobalKind::dangerous;
    }
    // A dotted name walks through attributes: it can reach eval from any module.
    if (name.find('.') != name.npos &&
        (name.ends_with(".eval") || name.ends_with(".exec") || name.ends_with(".system") ||
         name.ends_with(".popen") || name.find("__") != name.npos)) {
        return GlobalKind::dangerous;
    }
    return GlobalKind::foreign;
}

GlobalKind classifyGlobal(std::string_view full) {
    // The name may have dots of its own: the first split that is known decides, else the last dot does.
    for (size_t dot = full.rfind('.'); dot != full.npos; dot = dot ? full.rfind('.', dot - 1) : full.npos) {
        const GlobalKind kind = classifyGlobal(full.substr(0, dot), full.substr(dot + 1));
        if (kind != GlobalKind::foreign) return kind;
    }
    return GlobalKind::foreign;
}

std::vector<Note> globalNotes(const std::vector<std::string>& globals) {
    constexpr size_t kMaxNotes = 200;
    std::vector<Note> notes;
    const auto add = [&](GlobalKind wanted, Severity severity, std::string_view what) {
        for (const std::string& full : globals) {
            if (classifyGlobal(full) == wanted && notes.size() < kMaxNotes) {
                notes.push_back({rule::securityGlobal,
                                 severity,
                                 fmt::format("the pickle names {}, {}", full, what),
                                 {},
                                 {},
                                 std::nullopt});
            }
        }
    };
    add(GlobalKind::dangerous, Severity::error,
        "which can run commands or code when Python loads this file; nothing of it was run here");
    add(GlobalKind::foreign, Severity::warning,
        "which is not plain data; it is shown, but never imported or called");
    return notes;
}

std::vector<std::string> globalsOf(const ValueGraph& graph) {
    std::vector<std::string> globals;
    std::unordered_set<std::string> seen;
    for (NodeId node = 0; node < graph.size(); ++node) {
        if (graph.kind(node) != ValueKind::global) continue;
        std::string full = fmt::format("{}.{}", graph.globalModule(node), graph.globalName(node));
        if (seen.insert(full).second) globals.push_back(std::move(full));
    }
    return globals;
}

}  // namespace shardscope
