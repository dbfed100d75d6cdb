// A conversion as a value: what the command line, the window, jobs and workers ask for. It travels as a
// recipe (docs/recipes.md): names, patterns and casts at the top, everything else under "job".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

// The words that stand for a choice, in the command line, in recipes and in reports.
template <class T>
using Choices = std::span<const std::pair<std::string_view, T>>;
Choices<SplitRule> choicesOf(SplitRule);
Choices<FillGaps> choicesOf(FillGaps);
Choices<Verify> choicesOf(Verify);
Choices<MasterWeights> choicesOf(MasterWeights);
Choices<IoMode> choicesOf(IoMode);
Choices<Accumulate> choicesOf(Accumulate);
Choices<Average::Rule> choicesOf(Average::Rule);  // of what is not averaged
template <class T>
std::string_view choiceName(T value) {
    for (const auto& [name, choice] : choicesOf(value))
        if (choice == value) return name;
    return {};
}

// How a source is opened, from words such as "--format", "dcp" or "--format=dcp". Errors: usage.
Result<Opening> openingOf(const std::vector<std::string>& words);
std::vector<std::string> openingWords(const Opening& opening);
CheckpointOptions checkpointOptions(const Opening& opening);
// As a conversion opens its source.
CheckpointOptions checkpointOptions(const ConversionRequest& request);

// The verbs that take fields of a request, as a set: those that convert, and `diff`, which compares what a
// conversion would take.
enum ConvertVerbs : uint8_t {
    kPlan = 1,
    kConvert = 2,
    kReshard = 4,
    kAverage = 8,
    kAllVerbs = 15,
    kDiff = 16
};
ConvertVerbs convertVerb(std::string_view name);     // one that converts; 0 for other names
ConvertVerbs verbWithFields(std::string_view name);  // `diff`, too

// One of the fields of a request: what it is in recipes, on command lines and in Python.
struct ConvertField {
    template <class T>
    using Of = T ConversionRequest::*;
    std::string_view name;    // of "job" in a recipe; empty = it stands elsewhere in one
    std::string_view option;  // "to"; empty = it stands elsewhere in a command line
    const char* title;        // of its field in window and page; empty = there is none
    std::variant<Of<std::string>, Of<std::vector<std::string>>, Of<bool>, Of<unsigned>, Of<uint64_t>,
                 Of<SplitRule>, Of<FillGaps>, Of<Verify>, Of<IoMode>, Of<Accumulate>, Of<Average::Rule>,
                 Of<MasterWeights>>
        member;
    const char *group = "", *type = "", *help = "";          // of the option; without help all verbs have it
    ConvertVerbs verbs = kAllVerbs;                          // that take it
    std::string (*malformed)(const std::string&) = nullptr;  // says what is wrong with a value
    std::span<const std::string_view> choices = {};          // all values; empty = any, or all of its type
    const char* usual = "";                                  // the default, where it is shown
};
// The one list of them, in the order of command lines.
std::span<const ConvertField> convertFields();

// Words options as window and page do, by the names of their fields (base/option_words.h).
std::string titledOption(std::string_view name, std::string_view value);

// Sets one option of these verbs: "to" and its value, empty for an option without one. False when they have
// no option of this name. Errors: usage.
Result<bool> takeConvertOption(ConversionRequest& request, ConvertVerbs verbs, std::string_view option,
                               const std::string& value);
// Names of tensors as --keys says them, which refines the format. Errors: usage.
Status takeKeys(ConversionRequest& request, const std::string& keys);

// As words after `shardscope`: "convert" or "average", the ends, and what differs from the defaults.
std::vector<std::string> convertWords(const ConversionRequest& request);

// As the JSON text of a recipe. recipeJson() stands alone: it takes in what the recipe that `map` names
// holds. Errors: usage (a malformed rule, text that is not UTF-8); those of recipeText().
Result<std::string> requestJson(const ConversionRequest& request);
Result<std::string> recipeJson(const ConversionRequest& request);
Result<ConversionRequest> requestFromJson(std::string_view text);
// The same for other processes: bytes that are not ASCII are %XX in it, so that paths need not be UTF-8.
std::string packRequest(ConversionRequest request);
Result<ConversionRequest> unpackRequest(std::string_view text);
// The same for one text.
std::string packText(const std::string& text);
std::string unpackText(const std::string& packed);

// Its paths as those of this machine (storage/named_path.h).
ConversionRequest withNamedPaths(ConversionRequest request);

// A recipe of which this is all, or that keeps a conversion under "job". One with steps stays where it is
// and is named as `map`. Errors: usage, naming the field; those of recipeText().
Result<ConversionRequest> requestFromRecipe(const std::string& path);
// Errors: usage, when the recipe that it came from does not say what is converted to what.
Status checkEnds(const ConversionRequest& request, const std::string& recipe);

// "512MiB", "5GB", "4097": reads back exactly (base/units.h: parseBytes).
std::string exactBytesText(uint64_t bytes);

}  // namespace shardscope
