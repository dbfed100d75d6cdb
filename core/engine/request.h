// A conversion as a value: what the command line, the window, jobs and workers ask for. It travels as a
// recipe (docs/cli.md, "Recipes"): names, patterns and casts at the top, everything else under "job".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

// Rules stay in the text form of the command line (plan/request_text.h), so that a form can hold unfinished
// ones; settingsOf() parses them. Every field but the ends is an option of `shardscope convert`: the table in
// request.cpp is the one list of them.
struct ConversionRequest {
    std::string source, destination;
    std::vector<std::string> sourceOptions;  // how the source is opened: "--format", "dcp", ...
    std::string format, variant;             // of the target; empty = the source's, the format's default
    uint64_t maxFileSize = 0;                // bytes; 0 = the format's default
    std::vector<std::string> select, exclude;
    bool weightsOnly = false;
    std::vector<std::string> rename, cast;  // "FROM=TO", "GLOB=bf16"
    std::string map;                        // a recipe: a file, or one that is built in
    std::vector<std::string> set;           // "NAME=VALUE" for its parameters
    std::string objectsFile;
    bool strict = false;
    FillGaps fillGaps = FillGaps::refuse;
    std::string mesh;                       // "dp=2,tp=4"
    std::vector<std::string> shard, stage;  // "GLOB:tp=0", "GLOB:pp=1"
    std::string like;                       // a checkpoint
    SplitRule split = SplitRule::torch;
    Verify verify = Verify::digest;
    std::string on;                         // who works: "local:4", "ranks:4"; empty = one process
    unsigned threads = 0;                   // 0 = chosen for the machine
    uint64_t memory = uint64_t{512} << 20;  // bytes, of the whole process
    IoMode io = IoMode::automatic;
    bool overwrite = false, resume = false;

    bool operator==(const ConversionRequest&) const = default;
};

// The words that stand for a choice, in the command line, in recipes and in reports.
template <class T>
using Choices = std::span<const std::pair<std::string_view, T>>;
Choices<SplitRule> choicesOf(SplitRule);
Choices<FillGaps> choicesOf(FillGaps);
Choices<Verify> choicesOf(Verify);
Choices<IoMode> choicesOf(IoMode);
Choices<MasterWeights> choicesOf(MasterWeights);
template <class T>
std::string_view choiceName(T value) {
    for (const auto& [name, choice] : choicesOf(value))
        if (choice == value) return name;
    return {};
}

// The same for the engine. Errors: usage, naming the malformed rule.
Result<ConvertSettings> settingsOf(const ConversionRequest& request);
// How a source is opened, from words such as "--format", "dcp" or "--format=dcp". Errors: usage.
Result<CheckpointOptions> openingOf(const std::vector<std::string>& words);

// As words after `shardscope`: "convert", both ends, and what differs from the defaults. As those of a job
// they come after `shardscope-worker`, with its options before them, where `on` names ranks.
std::vector<std::string> convertWords(const ConversionRequest& request);
std::vector<std::string> jobWords(ConversionRequest request);

// As the JSON text of a recipe. recipeJson() stands alone: it takes in what the recipe that `map` names
// holds. Errors: usage (a malformed rule, text that is not UTF-8); those of recipeText().
Result<std::string> requestJson(const ConversionRequest& request);
Result<std::string> recipeJson(const ConversionRequest& request);
Result<ConversionRequest> requestFromJson(std::string_view text);
// The same for other processes: bytes that are not ASCII are %XX in it, so that paths need not be UTF-8.
std::string packRequest(ConversionRequest request);
Result<ConversionRequest> unpackRequest(std::string_view text);

// A recipe of which this is all, or that keeps a conversion under "job". One with steps stays where it is
// and is named as `map`. Errors: usage, naming the field; those of recipeText().
Result<ConversionRequest> requestFromRecipe(const std::string& path);
// Errors: usage, when the recipe that it came from does not say what is converted to what.
Status checkEnds(const ConversionRequest& request, const std::string& recipe);

// "512MiB", "5GB", "4097": reads back exactly (base/units.h: parseBytes).
std::string exactBytesText(uint64_t bytes);

}  // namespace shardscope
