#include "engine/request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/units.h"
#include "engine/quantized.h"
#include "engine/recipe.h"
#include "engine/recipe_fields.h"
#include "engine/recipe_fit.h"
#include "plan/request_text.h"
#include "plan/shard_preset.h"
#include "storage/named_path.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Request = ConversionRequest;

using Field = ConvertField;

template <auto parse>
std::string malformed(const std::string& text) {
    const auto parsed = parse(text);
    return parsed.ok() ? std::string() : parsed.error().message;
}

Result<std::vector<ShardRule>> shardRulesOf(const std::string& text) {
    std::vector<ShardRule> rules;
    SHARDSCOPE_TRY(addShardRule(rules, text));
    return rules;
}

constexpr const char *kTarget = "Target", *kWhat = "What", *kAverages = "Average",
                     *kWhere = "Where each byte goes", *kHow = "How", *kWho = "Who works",
                     *kRanks = "For ranks (--on ranks)";
constexpr auto kWrites = static_cast<ConvertVerbs>(kAllVerbs & ~kPlan);
constexpr auto kOfOne = static_cast<ConvertVerbs>(kAllVerbs & ~kAverage);
constexpr auto kAndDiff = static_cast<ConvertVerbs>(kAllVerbs | kDiff);
constexpr std::string_view kFills[] = {"nan", "zero"}, kBackends[] = {"gloo", "nccl"},
                           kComputes[] = {"auto", "cpu", "gpu"};

constexpr Field kFields[] = {
    {"source", "", "", &Request::source},
    {"destination", "", "", &Request::destination},
    {"format", "to", "Format", &Request::format, kTarget, "FORMAT",
     "Format to write (default: the source's); 'shardscope formats' lists them. hf is a model that "
     "transformers "
     "loads: weights alone, Hugging Face's names, config.json; a result that would not load is refused",
     static_cast<ConvertVerbs>(kAllVerbs & ~kReshard)},
    {"variant", "variant", "Variant", &Request::variant, kTarget, "NAME",
     "Variant of the format, where it has several; id=N chooses a save of a Paddle source"},
    {"max_file_size", "max-file-size", "Largest file", &Request::maxFileSize, kTarget, "SIZE",
     "Start a new file above this size"},
    {"", "select", "Only these names", &Request::select, kWhat, "GLOB",
     "Only these names (GLOB or re:REGEX, repeatable)", kAndDiff},
    {"", "exclude", "Not these names", &Request::exclude, kWhat, "GLOB", "Not these names (repeatable)",
     kAndDiff},
    {"average", "", "", &Request::average},
    {"weights", "weights", "Weights", &Request::weights, kAverages, "WEIGHTS",
     "uniform (default), one number for each checkpoint (1,2,4), linear, minus-sqrt or "
     "cosine (the decay of the learning rate that the average stands for), or a file of "
     "numbers",
     kAverage},
    {"raw_weights", "raw-weights", "Take weights as they are", &Request::rawWeights, kAverages, "",
     "Do not make the weights sum up to one", kAverage},
    {"accumulate", "accumulate", "Sum up in", &Request::accumulate, kAverages, "DTYPE",
     "Sum up in fp32 (default) or fp64", kAverage},
    {"others", "others", "Integers and single numbers", &Request::notAveraged, kAverages, "RULE",
     "Integers and single elements: those of the last checkpoint (last, default), or an "
     "error where they differ (same)",
     kAverage},
    {"average_optimizer", "optimizer", "Average optimizer state too", &Request::averageOptimizer, kAverages,
     "", "Average optimizer state too (otherwise it is left behind)", kAverage},
    {"weights_only", "weights-only", "Weights only", &Request::weightsOnly, kWhat, "",
     "Parameters and buffers alone (no optimizer state, nothing else of the trainer)",
     static_cast<ConvertVerbs>(kOfOne | kDiff)},
    {"master_weights", "master-weights", "fp32 masters", &Request::masterWeights, kWhat, "HOW",
     "Values of weights whose fp32 masters the source holds: auto (default; from the "
     "masters where a cast asks for more than the weight has), use (from the masters, as "
     "float32 without a cast) or ignore"},
    {"skip_damaged", "skip-damaged", "Skip what is damaged", &Request::skipDamaged, kWhat, "",
     "Leave out and list what is damaged or not a plain array (otherwise an error)"},
    {"", "rename", "Rename", &Request::rename, kWhat, "FROM=TO",
     "Regular expression and replacement for names (repeatable)", kAndDiff, malformed<parseRenameRule>},
    {"", "dtype", "Cast", &Request::cast, kWhat, "GLOB=DTYPE",
     "Cast matching tensors (repeatable; the first match wins)", kAllVerbs, malformed<parseCastRule>},
    {"dequantize", "dequantize", "Quantized weights as", &Request::dequantize, kWhat, "DTYPE",
     "Take quantized weights (fp8, MXFP4, NVFP4, GPTQ, AWQ, bitsandbytes, compressed-tensors) as the "
     "tensors that they stand for: bf16, fp16 or fp32",
     static_cast<ConvertVerbs>(kOfOne | kDiff), malformed<dequantizedDtype>},
    {"adapter", "adapter", "LoRA adapter to merge", &Request::adapter, kWhat, "DIR",
     "Merge this LoRA adapter into the weights (a directory of PEFT, or any checkpoint with its tensors and "
     "an adapter_config.json)",
     kOfOne},
    {"map", "map", "Recipe", &Request::map, kWhat, "RECIPE",
     "Recipe for names, shapes and dtypes: a file, one of 'shardscope recipes', or auto (the one "
     "that fits all names)",
     kAndDiff},
    {"expect", "expect", "Expected model", &Request::expect, kWhat, "DIR",
     "Write nothing unless the result has the tensors of this model: its weights, or the "
     "layers, experts and vocabulary of its config.json"},
    {"set", "set", "Recipe parameters", &Request::set, kWhat, "NAME=VALUE",
     "Value of a parameter of the recipe (repeatable)", kAndDiff},
    {"objects", "objects", "Objects file", &Request::objectsFile, kWhat, "FILE.pt",
     "Keep objects that the target cannot hold in this torch.save file"},
    {"assets", "assets", "Assets from", &Request::assets, kWhat, "DIR",
     "Configuration and tokenizer beside safetensors: auto (default; those of the "
     "checkpoint), none, or a directory"},
    {"strict", "strict", "Strict", &Request::strict, kWhat, "", "Refuse to leave anything out"},
    {"fill_gaps", "fill-gaps", "Elements that no chunk holds", &Request::fillGaps, kWhat, "VALUE",
     "Fill elements that no chunk or file holds with nan or zero (otherwise an error)", kOfOne, nullptr,
     kFills},
    {"mesh", "mesh", "Mesh", &Request::mesh, kWhere, "MESH",
     "Ranks of the target, e.g. dp=2,tp=4 (the last axis varies fastest)", kAllVerbs, malformed<parseMesh>},
    {"shard", "shard", "Shard rules", &Request::shard, kWhere, "RULE",
     "Shard matching tensors: GLOB:AXIS=DIM,... (repeatable; the first match wins). Or as frameworks do, by "
     "names of layers: tensor-parallel (over tp, or tensor-parallel:AXIS), fsdp (over dp)",
     kAllVerbs, malformed<shardRulesOf>},
    {"stage", "stage", "Pipeline stages", &Request::stage, kWhere, "RULE",
     "Put matching tensors on one coordinate of an axis: GLOB:pp=1 (repeatable)", kAllVerbs,
     malformed<parseStageRule>},
    {"like", "like", "Like another checkpoint", &Request::like, kWhere, "CHECKPOINT",
     "Same names and placement as this checkpoint; 'source': sharded as the source is, over another mesh "
     "(what "
     "reshard does without rules)"},
    {"split", "split", "Uneven sizes", &Request::split, kWhere, "RULE",
     "Rule for sizes that do not divide: torch (default), even or paddle"},
    {"verify", "verify", "Verify", &Request::verify, kHow, "HOW",
     "digest (re-read the destination; default), full (the source again too), checksums (a "
     "bucket that checks those of all parts has done it) or none",
     kWrites},
    {"resume", "resume", "Resume", &Request::resume, kHow, "", "Continue an interrupted job", kWrites},
    {"overwrite", "overwrite", "Overwrite", &Request::overwrite, kHow, "",
     "Replace an existing destination, once the new one is whole", kWrites},
    {"unguarded", "unguarded", "Store without conditional writes", &Request::unguarded, kHow, "",
     "Write to a bucket also where its store has no conditional writes: two jobs that write one destination "
     "at a time may not notice each other"},
    {"on", "on", "Where", &Request::on, kWho, "WHERE",
     "local:N processes, ssh:HOST,HOST through your own ssh, or "
     "slurm:nodes=N,KEY=VALUE,... on nodes that Slurm lends; joined by '+'; the "
     "destination must be on a file system that all share (default: this process alone). "
     "Or ranks:N, which serve each other their files; ranks, which torchrun, mpirun or "
     "srun starts; local-gpus, one on each GPU here, over NCCL. After a comma how ranks "
     "read the source: direct (each what it writes), broadcast (rank 0 for all), exchange "
     "(each the files that it has) or auto (as it is stored)"},
    {"backend", "backend", "", &Request::backend, kRanks, "NAME",
     "How rank 0 hands on what it reads in broadcast mode: gloo (TCP) or nccl (between GPUs)", kAllVerbs,
     nullptr, kBackends, "gloo"},
    {"compute", "compute", "", &Request::compute, kRanks, "WHO",
     "Who casts, scans and hashes for ranks: cpu, gpu (one for each rank) or auto (the "
     "GPU with --backend nccl, else the processor; the default)",
     kAllVerbs, nullptr, kComputes},
    {"own_disks", "own-disks", "", &Request::ownDisks, kRanks, "",
     "The ranks share no file system for the destination: each of its files stays on the "
     "disk of the rank that writes it"},
    {"threads", "threads", "Threads", &Request::threads},
    {"memory", "memory", "Most memory", &Request::memory},
    {"io", "io", "Reads and writes", &Request::io},
};
constexpr unsigned kMostThreads = 1024;
// Of formats, as options of opening.
constexpr std::string_view kMasterWeights = "master-weights", kBuckets = "buckets";

// How any source is opened, then what the formats take; each option has a value.
std::vector<FormatOption> openingOptions() {
    std::vector<FormatOption> all{{commandOption("format")}, {commandOption("variant")}};
    for (const FormatOption& option : formatOptions())
        all.push_back(option);
    return all;
}

// ------------------------------------------------------------------ as words

void addOption(std::vector<std::string>& words, std::string_view name, const std::string& value) {
    // A value that begins with a dash must not be taken for an option.
    if (value.empty() || value.starts_with('-')) {
        words.push_back(fmt::format("{}={}", name, value));
    } else {
        words.emplace_back(name);
        words.push_back(value);
    }
}

// What a field holds, as JSON.
Json valueOf(const Request& request, const Field& field) {
    return std::visit(
        [&](auto member) -> Json {
            const auto& value = request.*member;
            using T = std::decay_t<decltype(value)>;
            if constexpr (std::is_enum_v<T>)
                return std::string(choiceName(value));
            else if constexpr (std::is_same_v<T, uint64_t>)
                return exactBytesText(value);
            else
                return value;
        },
        field.member);
}

// ------------------------------------------------------------------ as a recipe

Json pairsOf(const std::vector<std::string>& rules, const char* first, const char* second, bool last) {
    Json list = Json::array();
    for (const std::string& rule : rules) {
        const size_t equals = std::min(last ? rule.rfind('=') : rule.find('='), rule.size());
        list.push_back(
            {{first, rule.substr(0, equals)}, {second, rule.substr(std::min(equals + 1, rule.size()))}});
    }
    return list;
}

Json documentOf(const Request& request) {
    static const Request usual;
    Json job;
    if (request.opening != Opening()) job["source_options"] = openingWords(request.opening);
    for (const Field& field : kFields) {
        if (field.name.empty()) continue;
        if (Json value = valueOf(request, field); value != valueOf(usual, field))
            job[std::string(field.name)] = std::move(value);
    }
    Json recipe{{"schema", kRecipeSchema}};
    if (!request.select.empty()) recipe["select"] = request.select;
    if (!request.exclude.empty()) recipe["drop"] = request.exclude;
    if (!request.rename.empty()) recipe["rename"] = pairsOf(request.rename, "from", "to", false);
    if (!request.cast.empty()) recipe["cast"] = pairsOf(request.cast, "tensors", "dtype", true);
    if (!job.empty()) recipe["job"] = std::move(job);
    return recipe;
}

Result<std::string> textOf(const Json& recipe) {
    try {
        return recipe.dump(4) + "\n";
    } catch (const Json::exception&) {
        return makeError(ErrorCode::usage, "a conversion whose words are not UTF-8 cannot be kept as JSON")
            .withHint("'shardscope convert' itself takes such names");
    }
}

// What a field expects of a text that it does not take; empty = it takes it.
template <class T>
std::string takeText(T& value, const std::string& text) {
    if constexpr (std::is_same_v<T, std::string>) {
        value = text;
    } else if constexpr (std::is_same_v<T, uint64_t>) {
        const auto bytes = parseBytes(text);
        if (!bytes) return "a size such as 512MiB";
        value = *bytes;
    } else {
        std::string all;
        for (const auto& [name, choice] : choicesOf(T{})) {
            if (name == text) return value = choice, std::string();
            all += fmt::format("{}{}", all.empty() ? "one of " : ", ", name);
        }
        return all;
    }
    return {};
}

std::string takeNumber(unsigned& value, std::optional<uint64_t> number) {
    if (!number || *number > kMostThreads) return fmt::format("a number from 0 to {}", kMostThreads);
    value = static_cast<unsigned>(*number);
    return {};
}

// The same of what a recipe holds.
template <class T>
std::string takeJson(T& value, const Json& json) {
    if constexpr (std::is_same_v<T, bool>) {
        if (!json.is_boolean()) return "true or false";
        value = json.get<bool>();
        return {};
    } else if constexpr (std::is_same_v<T, unsigned>) {
        return takeNumber(value,
                          json.is_number_unsigned() ? std::optional(json.get<uint64_t>()) : std::nullopt);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
        if (!json.is_array() || !std::ranges::all_of(json, [](const Json& item) { return item.is_string(); }))
            return "a list of texts";
        value = json.get<T>();
        return {};
    } else {
        return json.is_string() ? takeText(value, json.get_ref<const std::string&>()) : "a text";
    }
}

// And of a command line.
template <class T>
std::string takeWord(T& value, const std::string& text) {
    if constexpr (std::is_same_v<T, bool>) {
        value = true;
        return text.empty() ? "" : "without a value";
    } else if constexpr (std::is_same_v<T, unsigned>) {
        return takeNumber(value, parseNumber<uint64_t>(text));
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
        value.push_back(text);
        return {};
    } else {
        return takeText(value, text);
    }
}

Status takeField(Request& request, const Field& field, const Json& json) {
    const std::string expected =
        std::visit([&](auto member) { return takeJson(request.*member, json); }, field.member);
    if (expected.empty()) return {};
    return wrongRecipe(fmt::format("'job.{}' is not {}", field.name, expected));
}

Status takeOpening(Opening& opening, const Json& json) {
    std::vector<std::string> words;
    if (const std::string expected = takeJson(words, json); !expected.empty())
        return wrongRecipe("'job.source_options' is not " + expected);
    auto taken = openingOf(words);
    if (!taken.ok()) return wrongRecipe("'job.source_options': " + taken.error().message);
    opening = *std::move(taken);
    return {};
}

Status takeJob(Request& request, const Json& job) {
    for (const auto& [name, value] : job.items()) {
        if (name == "source_options") {
            SHARDSCOPE_TRY(takeOpening(request.opening, value));
            continue;
        }
        const auto field = std::ranges::find_if(
            kFields, [&, &name = name](const Field& f) { return f.name == name && !name.empty(); });
        if (field == std::end(kFields))
            return wrongRecipe(fmt::format("'job.{}' is not a field of a recipe", name));
        SHARDSCOPE_TRY(takeField(request, *field, value));
    }
    return {};
}

// Rules that no one could run are refused when they are read or kept, not when a job starts.
Status checkRules(const Request& request) {
    auto target = targetRequest(request);
    return target.ok() ? Status() : std::move(target).error();
}

Result<Request> requestOf(const Json& recipe) {
    SHARDSCOPE_ASSIGN(Request request, recipeRules(recipe));
    if (recipe.contains("job")) SHARDSCOPE_TRY(takeJob(request, recipe["job"]));
    SHARDSCOPE_TRY(checkRules(request));
    return request;
}

// Calls use(text) for everything that the user has written.
template <class Use>
void forEachText(Request& request, Use&& use) {
    use(request.opening.format);
    use(request.opening.variant);
    for (auto& option : request.opening.own)
        use(option.second);
    for (const Field& field : kFields) {
        if (const auto* text = std::get_if<std::string Request::*>(&field.member)) use(request.**text);
        if (const auto* list = std::get_if<std::vector<std::string> Request::*>(&field.member))
            std::ranges::for_each(request.**list, use);
    }
}

template <class T>
Status parseAll(const std::vector<std::string>& texts, Result<T> (*parse)(std::string_view),
                std::vector<T>& out) {
    for (const std::string& text : texts) {
        SHARDSCOPE_ASSIGN(T rule, parse(text));
        out.push_back(std::move(rule));
    }
    return {};
}

}  // namespace

Choices<SplitRule> choicesOf(SplitRule) {
    static constexpr std::pair<std::string_view, SplitRule> kNames[] = {
        {"torch", SplitRule::torch}, {"even", SplitRule::even}, {"paddle", SplitRule::paddle}};
    return kNames;
}
Choices<FillGaps> choicesOf(FillGaps) {
    static constexpr std::pair<std::string_view, FillGaps> kNames[] = {
        {"refuse", FillGaps::refuse}, {"nan", FillGaps::nan}, {"zero", FillGaps::zero}};
    return kNames;
}
Choices<Verify> choicesOf(Verify) {
    static constexpr std::pair<std::string_view, Verify> kNames[] = {{"digest", Verify::digest},
                                                                     {"full", Verify::full},
                                                                     {"checksums", Verify::checksums},
                                                                     {"none", Verify::none}};
    return kNames;
}
Choices<MasterWeights> choicesOf(MasterWeights) {
    static constexpr std::pair<std::string_view, MasterWeights> kNames[] = {
        {"auto", MasterWeights::automatic}, {"use", MasterWeights::use}, {"ignore", MasterWeights::ignore}};
    return kNames;
}
Choices<IoMode> choicesOf(IoMode) {
    static constexpr std::pair<std::string_view, IoMode> kNames[] = {
        {"auto", IoMode::automatic}, {"direct", IoMode::direct}, {"buffered", IoMode::buffered}};
    return kNames;
}
Choices<Accumulate> choicesOf(Accumulate) {
    static constexpr std::pair<std::string_view, Accumulate> kNames[] = {{"fp32", Accumulate::fp32},
                                                                         {"fp64", Accumulate::fp64}};
    return kNames;
}
Choices<Average::Rule> choicesOf(Average::Rule) {
    static constexpr std::pair<std::string_view, Average::Rule> kNames[] = {{"last", Average::Rule::last},
                                                                            {"same", Average::Rule::same}};
    return kNames;
}
std::string exactBytesText(uint64_t bytes) {
    constexpr std::pair<std::string_view, uint64_t> kUnits[] = {
        {"GiB", uint64_t{1} << 30}, {"GB", 1'000'000'000}, {"MiB", uint64_t{1} << 20},
        {"MB", 1'000'000},          {"KiB", 1024},         {"KB", 1000}};
    for (const auto& [unit, size] : kUnits)
        if (bytes && bytes % size == 0) return fmt::format("{}{}", bytes / size, unit);
    return std::to_string(bytes);
}

namespace {

// What the words say with which the source is opened.
MasterWeights openedWith(const Request& request) {
    const auto values = checkpointOptions(request.opening).open.valuesOf(commandOption(kMasterWeights));
    for (const auto& [name, choice] : choicesOf(MasterWeights{}))
        if (!values.empty() && values.back() == name) return choice;
    return MasterWeights::automatic;
}

}  // namespace

Result<TargetRequest> targetRequest(const Request& from) {
    TargetRequest target{from};
    target.weightsOnly = from.weightsOnly || modelAsked(from.format, from.variant);
    if (!from.average.empty() && !from.averageOptimizer) target.leavesOptimizer = true;
    if (target.masterWeights == MasterWeights::automatic) target.masterWeights = openedWith(from);
    SHARDSCOPE_TRY(parseAll(from.rename, parseRenameRule, target.rename));
    SHARDSCOPE_TRY(parseAll(from.cast, parseCastRule, target.cast));
    if (!from.mesh.empty()) {
        SHARDSCOPE_ASSIGN(target.mesh, parseMesh(from.mesh));
    }
    for (const std::string& text : from.shard)
        SHARDSCOPE_TRY(addShardRule(target.shard, text));
    SHARDSCOPE_TRY(parseAll(from.stage, parseStageRule, target.stage));
    return target;
}

Result<Opening> openingOf(const std::vector<std::string>& words) {
    Opening opening;
    const std::vector<FormatOption> known = openingOptions();
    for (size_t i = 0; i < words.size(); ++i) {
        const size_t equals = words[i].starts_with("--") ? words[i].find('=') : std::string::npos;
        const std::string name = words[i].substr(0, equals);
        const auto option = std::ranges::find(known, name, &FormatOption::name);
        if (option == known.end() || (equals == std::string::npos && i + 1 == words.size())) {
            std::string all;
            for (const FormatOption& each : known)
                all += fmt::format("{}{}", all.empty() ? "" : ", ", each.name);
            return makeError(ErrorCode::usage, option == known.end()
                                                   ? fmt::format("'{}' is not an option of opening", words[i])
                                                   : fmt::format("'{}' needs a value", words[i]))
                .withHint("options of opening, each with a value: " + all);
        }
        std::string value = equals == std::string::npos ? words[++i] : words[i].substr(equals + 1);
        if (const auto values = option->values(); !values.empty() && !std::ranges::count(values, value))
            return makeError(ErrorCode::usage,
                             fmt::format("{} takes '{}'", name, fmt::join(values, "' or '")));
        if (option == known.begin())
            opening.format = std::move(value);
        else if (option == known.begin() + 1)
            opening.variant = std::move(value);
        else
            opening.own.emplace_back(name, std::move(value));
    }
    return opening;
}

std::vector<std::string> openingWords(const Opening& opening) {
    std::vector<std::string> words;
    if (!opening.format.empty()) addOption(words, commandOption("format"), opening.format);
    if (!opening.variant.empty()) addOption(words, commandOption("variant"), opening.variant);
    for (const auto& [name, value] : opening.own)
        addOption(words, name, value);
    return words;
}

CheckpointOptions checkpointOptions(const Opening& opening) {
    CheckpointOptions options;
    options.format = opening.format;
    options.open.variant = opening.variant;
    options.open.own = opening.own;
    return options;
}

CheckpointOptions checkpointOptions(const Request& request) {
    CheckpointOptions options = checkpointOptions(request.opening);
    if (request.masterWeights != MasterWeights::automatic)
        options.open.own.emplace_back(commandOption(kMasterWeights), choiceName(request.masterWeights));
    // Megatron's buckets hold masters, too; as long as they are not to be converted, they are best taken
    // apart.
    const bool masters = request.masterWeights == MasterWeights::use ||
                         (request.masterWeights == MasterWeights::automatic && !request.cast.empty());
    if (masters && (request.weightsOnly || modelAsked(request.format, request.variant)) &&
        options.open.valuesOf(commandOption(kBuckets)).empty())
        options.open.own.emplace_back(commandOption(kBuckets), "parameters");
    return options;
}

std::span<const ConvertField> convertFields() {
    return kFields;
}

std::string titledOption(std::string_view name, std::string_view value) {
    std::string title;
    if (const auto field = std::ranges::find(kFields, name, &Field::option); field != std::end(kFields))
        title = field->title;
    for (const FormatOption& each : formatOptions())
        if (title.empty() && each.name == commandOption(name)) title = each.title;
    if (title.empty()) return commandOption(name, value);
    return fmt::format("“{}”{}{}", title, value.empty() ? "" : " ", value);
}

ConvertVerbs convertVerb(std::string_view name) {
    return name == "plan"      ? kPlan
           : name == "convert" ? kConvert
           : name == "reshard" ? kReshard
           : name == "average" ? kAverage
                               : ConvertVerbs();
}

ConvertVerbs verbWithFields(std::string_view name) {
    return name == "diff" ? kDiff : convertVerb(name);
}

Status takeKeys(Request& request, const std::string& keys) {
    std::vector<std::string> forms{"plain"};
    for (const Format* format : builtinFormats())
        if (!format->info().refines.empty()) forms.push_back(format->info().name);
    if (!std::ranges::count(forms, keys))
        return makeError(ErrorCode::usage, fmt::format("{} not in {{{}}}", keys, fmt::join(forms, ",")));
    if (keys == forms[0]) return {};
    const FormatInfo& info = findFormat(keys)->info();
    if (!request.format.empty() && request.format != info.refines && request.format != info.name)
        return makeError(ErrorCode::usage, fmt::format("{} is a way to write {}", info.name, info.refines));
    request.format = info.name;
    return {};
}

Result<bool> takeConvertOption(Request& request, ConvertVerbs verbs, std::string_view option,
                               const std::string& value) {
    const auto field = std::ranges::find(kFields, option, &Field::option);
    if (option.empty() || field == std::end(kFields) || !(field->verbs & verbs)) return false;
    std::string wrong =
        std::visit([&](auto member) { return takeWord(request.*member, value); }, field->member);
    if (!wrong.empty()) wrong = fmt::format("'{}' is not {}", value, wrong);
    if (wrong.empty() && field->malformed) wrong = field->malformed(value);
    if (!wrong.empty())
        return makeError(ErrorCode::usage, fmt::format("{}: {}", commandOption(option), wrong));
    return true;
}

std::vector<std::string> convertWords(const Request& request) {
    static const Request usual;
    std::vector<std::string> words{request.average.empty() ? "convert" : "average"};
    std::vector<std::string> ends = request.average;
    ends.insert(ends.end(), {request.source, request.destination});
    for (const std::string& path : ends)
        words.push_back(path.starts_with('-') ? "./" + path : path);
    const CheckpointOptions opened = checkpointOptions(request.opening);
    for (const std::string& word : openingWords(request.opening))
        words.push_back(word);
    for (const Field& field : kFields) {
        const Json value = valueOf(request, field);
        const std::string option = commandOption(field.option);
        if (field.option.empty() || value == valueOf(usual, field) || !opened.open.valuesOf(option).empty())
            continue;
        if (value.is_boolean())
            words.push_back(option);
        else if (value.is_array())
            for (const Json& item : value)
                addOption(words, option, item.get<std::string>());
        else
            addOption(words, option, value.is_string() ? value.get<std::string>() : value.dump());
    }
    return words;
}

Result<std::string> requestJson(const Request& request) {
    SHARDSCOPE_TRY(checkRules(request));
    return textOf(documentOf(request));
}

Result<std::string> recipeJson(const Request& request) {
    if (request.map.empty() || request.map == kAutomaticRecipe) return requestJson(request);
    SHARDSCOPE_ASSIGN(const std::string text, recipeText(request.map));
    const Json inner = Json::parse(text, nullptr, false);
    if (auto read = requestOf(inner); !read.ok()) return std::move(read).error().inFile(request.map);
    Request whole = request;
    whole.map.clear();
    SHARDSCOPE_TRY(checkRules(whole));
    Json recipe = documentOf(whole);
    // Its patterns come before those beside --map.
    for (const char* key : {"select", "drop", "rename", "cast"}) {
        Json all = inner.value(key, Json::array());
        for (const Json& item : recipe.value(key, Json::array()))
            all.push_back(item);
        if (!all.empty()) recipe[key] = std::move(all);
    }
    for (const char* key : {"parameters", "steps"})
        if (inner.contains(key) && !inner[key].empty()) recipe[key] = inner[key];
    return textOf(recipe);
}

Result<Request> requestFromJson(std::string_view text) {
    return requestOf(Json::parse(text, nullptr, false));
}

std::string packText(const std::string& text) {
    std::string packed;
    for (const char c : text)
        packed += c == '%' || static_cast<unsigned char>(c) >= 0x80
                      ? fmt::format("%{:02X}", static_cast<unsigned char>(c))
                      : std::string(1, c);
    return packed;
}

std::string unpackText(const std::string& packed) {
    std::string plain;
    for (size_t at = 0; at < packed.size(); ++at) {
        unsigned char byte = 0;
        const char* const digits = packed.data() + at + 1;
        if (packed[at] == '%' && packed.size() - at > 2 &&
            std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2)
            at += 2;
        else
            byte = static_cast<unsigned char>(packed[at]);
        plain += static_cast<char>(byte);
    }
    return plain;
}

std::string packRequest(Request request) {
    forEachText(request, [](std::string& text) { text = packText(text); });
    return documentOf(request).dump();
}

Result<Request> unpackRequest(std::string_view text) {
    SHARDSCOPE_ASSIGN(Request request, requestFromJson(text));
    forEachText(request, [](std::string& packed) { packed = unpackText(packed); });
    return request;
}

Request withNamedPaths(Request request) {
    for (std::string Request::*member :
         {&Request::source, &Request::destination, &Request::map, &Request::like, &Request::expect,
          &Request::objectsFile, &Request::assets, &Request::adapter})
        request.*member = namedPath(request.*member);
    for (std::string& path : request.average)
        path = namedPath(path);
    return request;
}

Result<Request> requestFromRecipe(const std::string& path) {
    SHARDSCOPE_ASSIGN(const std::string text, recipeText(path));
    const Json recipe = Json::parse(text, nullptr, false);
    auto read = requestOf(recipe);
    if (!read.ok()) return std::move(read).error().inFile(path);
    Request request = std::move(read).value();
    if (!request.map.empty() &&
        std::ranges::any_of(std::array{"select", "drop", "rename", "cast", "parameters", "steps"},
                            [&](const char* key) { return recipe.contains(key); }))
        return wrongRecipe("the recipe has steps, and 'job.map' names another").inFile(path);
    if (!recipe.value("steps", Json::array()).empty()) {
        std::error_code error;
        request.map = std::filesystem::absolute(path, error).string();
        for (auto* brought : {&request.select, &request.exclude, &request.rename, &request.cast})
            brought->clear();
    }
    return request;
}

Status checkEnds(const Request& request, const std::string& recipe) {
    std::string missing;
    for (const auto& [name, end] :
         {std::pair("source", &request.source), {"destination", &request.destination}})
        if (end->empty()) missing += fmt::format("{}'job.{}'", missing.empty() ? "" : " and ", name);
    if (missing.empty()) return {};
    return makeError(ErrorCode::usage, fmt::format("the recipe holds no {}", missing))
        .inFile(recipe)
        .withHint(fmt::format("add it, or give both: convert SRC DST --map {}", recipe));
}

}  // namespace shardscope
