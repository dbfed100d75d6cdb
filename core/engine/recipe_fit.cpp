#include "engine/recipe_fit.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/regular_expression.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/engine.h"
#include "engine/model_config.h"
#include "model/name_pattern.h"
#include "plan/request_text.h"
#include "plan/steps.h"
#include "storage/url.h"

namespace shardscope {
namespace {

// "llama-hf-from-torchtitan". Recipes that are called otherwise do not turn one framework's names into those
// of another.
bool parseName(std::string_view name, RecipeFit& fit) {
    constexpr std::string_view kFrom = "-from-";
    const size_t from = name.find(kFrom);
    const size_t to = from == name.npos ? name.npos : name.rfind('-', from - 1);
    if (to == name.npos) return false;
    fit.recipe = name;
    fit.family = name.substr(0, to);
    fit.to = name.substr(to + 1, from - to - 1);
    fit.from = name.substr(from + kFrom.size());
    return true;
}

// Of a config.json: "qwen3_moe" is of the families qwen3-moe and, where that has no recipe, qwen3. "olmo2" is
// not of the family olmo.
bool isOfFamily(std::string_view modelType, std::string_view family) {
    constexpr std::pair<std::string_view, std::string_view> kOthers[] = {{"glm4_moe", "glm4.5"},
                                                                         {"kimi_k2", "deepseek-v3"}};
    for (const auto& [other, same] : kOthers)
        if (modelType == other) return family == same;
    std::string type(modelType);
    std::ranges::replace(type, '_', '-');
    return type == family || type.starts_with(std::string(family) + '-');
}

bool isWeight(const Catalog& catalog, TensorId t) {
    return catalog.role(t) == Role::parameter;
}

std::vector<std::string> weightsOf(const Catalog& catalog) {
    std::vector<std::string> names;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (isWeight(catalog, t)) names.emplace_back(catalog.name(t));
    }
    return names;
}

std::vector<StepNumber*> numbersOf(RecipeStep& step) {
    std::vector<StepNumber*> numbers;
    for (StepNumber& size : step.sizes)
        numbers.push_back(&size);
    for (auto* number : {&step.start, &step.stride, &step.length, &step.index, &step.row, &step.heads,
                         &step.kvHeads, &step.headDim, &step.ranks, &step.operand}) {
        if (*number) numbers.push_back(&**number);
    }
    return numbers;
}

// Applies a step to names. Numbers that the step lacks are replaced by 1: the names that it matches do not
// depend on them.
Status applyToNames(const Catalog& catalog, RecipeStep step, StepState& state, RecipeFit& fit,
                    bool& matched) {
    std::vector<std::string> lacks;
    const StepState before = step.ifKnown ? StepState() : state;
    for (StepNumber* number : numbersOf(step)) {
        if (!step.ifKnown && !number->lacks.empty()) lacks.push_back(number->lacks);
    }
    Status status = applyStep(catalog, step, state, matched);
    if (status.ok() || lacks.empty()) return status;
    for (StepNumber* number : numbersOf(step)) {
        if (!number->missing.empty()) *number = {1, {}, {}};
    }
    state = before;
    SHARDSCOPE_TRY(applyStep(catalog, step, state, matched));
    for (std::string& name : lacks) {
        if (!std::ranges::count(fit.missing, name)) fit.missing.push_back(std::move(name));
    }
    return {};
}

// Parts of recipes that bring the layouts of one framework into one form. A tensor that nothing else touches
// keeps a name of that framework.
bool isPreparation(const RecipeStep& step) {
    return step.recipe.ends_with("-apart") || step.recipe.ends_with("-older-names");
}

// What each weight becomes, by its name; the views of it.
using Made = std::map<std::string, TensorView>;

bool sameView(const TensorView& a, const TensorView& b) {
    return a.shape() == b.shape() && a.dims() == b.dims() && a.pieces() == b.pieces() &&
           a.changes() == b.changes();
}

bool sameMade(const Made& a, const Made& b) {
    return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
        return x.first == y.first && sameView(x.second, y.second);
    });
}

// Completes `fit`; an error where the recipe cannot be applied at all.
Status fitRecipe(const RecipeSource& source, RecipeFit& fit, Made& made) {
    const Catalog& catalog = source.catalog;
    TargetRequest request, last;
    SHARDSCOPE_TRY(applyRecipe(fit.recipe, {}, source, request));
    // Of two recipes the second one gives the names of the target.
    const size_t plus = fit.recipe.find('+');
    if (plus != fit.recipe.npos) SHARDSCOPE_TRY(applyRecipe(fit.recipe.substr(plus + 1), {}, source, last));
    const size_t firstOfLast = plus == fit.recipe.npos ? 0 : request.steps.size() - last.steps.size();
    std::vector<NamePattern> dropped, shared;  // shared: both frameworks call it so
    for (const std::string& text : request.exclude) {
        SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(text));
        dropped.push_back(std::move(pattern));
    }
    for (const std::string& text : request.leaves.value_or(std::vector<std::string>())) {
        SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(text));
        shared.push_back(std::move(pattern));
    }
    StepState state;
    std::set<TensorId> weights, left;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.role(t) != Role::parameter && catalog.role(t) != Role::buffer) continue;
        if (anyMatches(dropped, catalog.name(t))) continue;
        if (isWeight(catalog, t)) weights.insert(t);
        state.tensors.push_back({std::string(catalog.name(t)), t, nullptr, {}, false});
    }
    // What there was before the first step that gives names of the target, and how it was made.
    std::unordered_map<std::string, std::string> before;
    bool named = false;
    size_t number = 0;
    for (const RecipeStep& step : request.steps) {
        if (!named && number++ >= firstOfLast && !isPreparation(step)) {
            named = true;
            for (const StepTensor& tensor : state.tensors)
                before.emplace(tensor.name, tensor.made);
        }
        bool matched = false;
        SHARDSCOPE_TRY(applyToNames(catalog, step, state, fit, matched));
        if (!matched && step.recipe.empty()) ++fit.idle;
    }
    for (const StepTensor& tensor : state.tensors) {
        if (!isWeight(catalog, tensor.origin)) continue;
        fit.results.push_back(tensor.name);
        made.emplace(tensor.name, tensor.view
                                      ? *tensor.view
                                      : TensorView::whole(tensor.origin, catalog.shape(tensor.origin)));
        const auto same = before.find(tensor.name);
        if (same != before.end() && same->second == tensor.made && !anyMatches(shared, tensor.name))
            left.insert(tensor.origin);
    }
    for (const TensorId t : left)
        fit.left.emplace_back(catalog.name(t));
    fit.weights = weights.size() - left.size();
    // One for adapters is for nothing else.
    if (request.adapter && std::ranges::none_of(fit.results, [](std::string_view name) {
            return name.find(".lora_") != name.npos;
        }))
        fit.weights = 0;
    fit.values = std::move(request.values);
    return {};
}

bool better(const RecipeFit& a, const RecipeFit& b) {
    const auto key = [](const RecipeFit& fit) {
        return std::tuple(fit.left.size(), !fit.ofModel,
                          fit.ofModel ? -static_cast<int>(fit.family.size()) : 0, fit.idle);
    };
    return key(a) < key(b);
}

bool equallyGood(const RecipeFit& a, const RecipeFit& b) {
    return !better(a, b) && !better(b, a);
}

// `prefix`, and what else all names have in common before the output layer's: that stands at the top of a
// model.
std::string withHeadsOf(const std::vector<std::string>& names, const std::string& prefix) {
    for (const std::string& name : names) {
        for (const std::string_view head :
             {"lm_head.", "embed_out.", "proj_out.", "score.", "classifier.", "cls.", "qa_outputs."}) {
            const size_t at = name.find("." + std::string(head));
            if (at == name.npos || at < prefix.size()) continue;
            const std::string before = name.substr(0, at + 1);
            if (std::ranges::all_of(names,
                                    [&](const std::string& other) { return other.starts_with(before); }))
                return before;
        }
    }
    return prefix;
}

// "model." where a trainer kept the model under that key: what stands before the names that transformers,
// vLLM or Meta's code has (`of`: as in the names of recipes).
std::string wrapperOf(const std::vector<std::string>& names, std::string_view of) {
    if (of != "hf" && of != "vllm" && of != "meta") return {};
    const std::vector<std::string_view> marks =
        of == "meta" ? std::vector<std::string_view>{"layers.", "tok_embeddings."}
                     : std::vector<std::string_view>{"model.layers.", "model.embed_tokens.", "transformer.h.",
                                                     "transformer.wte."};
    // What training wrappers put before all names, whatever those are.
    if (of == "hf" && !names.empty()) {
        std::string prefix;
        const auto all = [&](const std::string& start) {
            return std::ranges::all_of(names,
                                       [&](const std::string& name) { return name.starts_with(start); });
        };
        for (bool more = true; more;) {
            more = false;
            for (const std::string_view wrapper : {"module.", "_orig_mod.", "_fsdp_wrapped_module."}) {
                if (!all(prefix + std::string(wrapper))) continue;
                prefix += wrapper;
                more = true;
            }
        }
        const bool marked = std::ranges::any_of(names, [&](const std::string& name) {
            return std::ranges::any_of(marks,
                                       [&](std::string_view mark) { return name.find(mark) != name.npos; });
        });
        if (!marked) return withHeadsOf(names, prefix);
    }
    for (const std::string& name : names) {
        for (const std::string_view mark : marks) {
            const size_t at = name.find(mark);
            if (at == name.npos || at == 0 || name[at - 1] != '.') continue;
            const std::string prefix = name.substr(0, at);
            if (!std::ranges::all_of(prefix, [](char c) { return c == '.' || c == '_' || isalnum(c); }))
                return {};
            const bool all = std::ranges::all_of(
                names, [&](const std::string& other) { return other.starts_with(prefix); });
            return all ? prefix : std::string();
        }
    }
    return of == "hf" ? withHeadsOf(names, {}) : std::string();
}

// torch.compile, FSDP and checkpointing of activations name the module that they wrap; here in the middle.
constexpr std::string_view kWrappers =
    "(?:[.](?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module))+[.]";

// Takes them out of the names; whether there were any.
bool unwrap(std::vector<std::string>& names) {
    static const RegularExpression wrappers = RegularExpression::parse(kWrappers).value();
    bool any = false;
    for (std::string& name : names) {
        std::string plain = wrappers.replaceAll(name, ".");
        any = any || plain != name;
        name = std::move(plain);
    }
    return any;
}

// A rule that takes it off. `prefix` is made of letters, digits, '_' and '.'.
std::string withoutRule(const std::string& prefix) {
    std::string rule = "^";
    for (const char c : prefix)
        rule += c == '.' ? "[.]" : std::string(1, c);
    return rule + '=';
}

std::string leavesText(const RecipeFit& fit) {
    return fmt::format("'{}' leaves {} of {} as they are, such as '{}'", fit.recipe, fit.left.size(),
                       counted(fit.left.size() + fit.weights, "weight"),
                       printable(fit.left.front(), kNameInMessage));
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kTitles{
    {{"hf", "Hugging Face"},
     {"transformers", "transformers in memory"},
     {"megatron", "Megatron"},
     {"torchtitan", "torchtitan"},
     {"maxtext", "MaxText"},
     {"meta", "Meta"},
     {"vllm", "vLLM"},
     {"paddle", "PaddleNLP"},
     {"olmo", "OLMo"}}};

}  // namespace

Result<std::vector<RecipeFit>> fittingRecipes(const Checkpoint& checkpoint, const std::string& model,
                                              const StopToken& stop) {
    RecipeSource source = recipeSource(checkpoint, model);
    std::unordered_map<ObjectId, Result<Value>> objects;  // each is read once for all recipes
    source.object = [&, read = source.object](ObjectId o) {
        const auto known = objects.find(o);
        return known != objects.end() ? known->second : objects.emplace(o, read(o)).first->second;
    };
    const std::string modelType = modelTypeOf(*source.config);
    // Models of Hugging Face have fused names, too (Phi-3): only the files tell vLLM's.
    const bool ofVllm = checkpoint.format->info().name == "tensor-parallel";
    std::vector<std::pair<RecipeFit, Made>> all;
    for (const BuiltinRecipe& recipe : builtinRecipes()) {
        SHARDSCOPE_TRY(stop.poll());
        auto& [fit, made] = all.emplace_back();
        // Names in memory are alike where the order of elements is not: the model says which.
        const bool named = parseName(recipe.name, fit) && (fit.from != "vllm" || ofVllm) &&
                           (fit.from != "transformers" || isOfFamily(modelType, fit.family));
        if (!named || !fitRecipe(source, fit, made).ok() || fit.weights == 0 ||
            fit.left.size() > fit.weights) {
            all.pop_back();
            continue;
        }
        fit.description = recipeDescription(recipe);
        fit.ofModel = isOfFamily(modelType, fit.family);
    }
    std::ranges::stable_sort(all, better, &std::pair<RecipeFit, Made>::first);
    std::vector<RecipeFit> fits;
    for (size_t i = 0; i < all.size(); ++i) {
        const auto first =
            std::find_if(all.begin(), all.begin() + static_cast<ptrdiff_t>(i), [&](auto& other) {
                return other.first.to == all[i].first.to && sameMade(other.second, all[i].second);
            });
        if (first == all.begin() + static_cast<ptrdiff_t>(i)) {
            fits.push_back(all[i].first);
        } else {
            std::ranges::find(fits, first->first.recipe, &RecipeFit::recipe)
                ->same.push_back(all[i].first.recipe);
        }
    }
    return fits;
}

std::string_view namesOfFormat(std::string_view format) {
    if (format == "safetensors") return "hf";
    for (const std::string_view same : {"megatron", "olmo", "paddle"}) {
        if (format == same) return same;
    }
    return {};
}

std::string_view titleOfNames(std::string_view names) {
    const auto found = std::ranges::find(kTitles, names, &decltype(kTitles)::value_type::first);
    return found == kTitles.end() ? names : found->second;
}

RecipeChoice chooseRecipe(const std::vector<RecipeFit>& fits, std::string_view names, const Catalog& source) {
    RecipeChoice choice;
    const auto wanted = [&](const RecipeFit& fit) { return names.empty() || fit.to == names; };
    const auto best = std::ranges::find_if(fits, wanted);
    const bool fitting = best != fits.end() && best->fits();
    for (auto it = best; fitting && it != fits.end(); ++it) {
        if (wanted(*it) && it->fits() && equallyGood(*best, *it)) choice.candidates.push_back(it->recipe);
    }
    std::vector<std::string> results;
    if (choice.candidates.size() == 1) {
        choice.recipe = best->recipe;
        choice.missing = best->missing;
        choice.known = true;
        results = best->results;
        choice.candidates.clear();
        choice.why =
            fmt::format("'{}' fits the names of all {}", best->recipe, counted(best->weights, "weight"));
        if (!choice.missing.empty())
            choice.why += fmt::format("; it lacks {}, which no configuration beside the checkpoint states",
                                      listed(choice.missing, choice.missing.size()));
    } else if (fitting) {
        choice.why = fmt::format("several recipes fit the names: {}", listed(choice.candidates, 12));
    } else if (!names.empty() && std::ranges::any_of(fits, [&](const RecipeFit& fit) {
                   return fit.from == names && fit.fits();
               })) {
        choice.known = true;
        choice.why = fmt::format("the names are those of {} already", titleOfNames(names));
        results = weightsOf(source);
    } else {
        choice.why = "no recipe that is built in fits the names";
        if (best != fits.end()) choice.why += ": " + leavesText(*best);
        results = weightsOf(source);
    }
    if (names == "hf" && unwrap(results)) {
        choice.rename.push_back(fmt::format("{}=.", kWrappers));
        choice.why += "; what wrappers of modules put into the names goes";
    }
    if (const std::string prefix = wrapperOf(results, names); !prefix.empty()) {
        choice.rename.push_back(withoutRule(prefix));
        choice.why += fmt::format("; '{}' before all of them goes", prefix);
    }
    return choice;
}

namespace {

// Two recipes by way of Hugging Face's names, where no single one gives those of a model (vLLM, Meta).
Result<RecipeChoice> throughHuggingFace(const std::vector<RecipeFit>& fits, std::string_view names,
                                        const Checkpoint& source, const std::string& model) {
    RecipeChoice choice = chooseRecipe(fits, "hf", source.catalog());
    const std::string first = choice.recipe;
    choice.known = false;
    if (first.empty()) return choice;
    for (const BuiltinRecipe& recipe : builtinRecipes()) {
        RecipeFit fit;
        Made made;
        if (!parseName(recipe.name, fit) || fit.from != "hf" || fit.to != names) continue;
        fit.recipe = fmt::format("{}+{}", first, recipe.name);
        if (!fitRecipe(recipeSource(source, model), fit, made).ok() || !fit.fits() || fit.weights == 0)
            continue;
        if (choice.known)
            return makeError(ErrorCode::usage,
                             fmt::format("'{}' and '{}' both fit the names", choice.recipe, fit.recipe));
        choice = {};
        choice.known = true;
        choice.recipe = fit.recipe;
        choice.missing = fit.missing;
        choice.why = fmt::format("'{}' fits the names of all {}", fit.recipe, counted(fit.weights, "weight"));
        if (const std::string prefix = wrapperOf(fit.results, names); !prefix.empty())
            choice.rename = {withoutRule(prefix)};
    }
    return choice;
}

}  // namespace

Status applyFittingRecipe(const Checkpoint& source, const ConversionRequest& request, std::string_view format,
                          TargetRequest& target, std::string& said, const StopToken& stop) {
    SHARDSCOPE_ASSIGN(const auto fits, fittingRecipes(source, request.assets, stop));
    const Format* const known = findFormat(format);
    const FormatInfo::Model* model = modelAsked(format, request.variant);
    const std::string_view names =
        model ? std::string_view(model->names) : namesOfFormat(known ? known->info().name : format);
    RecipeChoice choice = chooseRecipe(fits, names, source.catalog());
    if (model && !choice.known) {
        SHARDSCOPE_ASSIGN(RecipeChoice both, throughHuggingFace(fits, names, source, request.assets));
        if (both.known) choice = std::move(both);
    }
    if (!choice.known && request.map == kAutomaticRecipe)
        return makeError(ErrorCode::usage, fmt::format("{}: {}", option("map", kAutomaticRecipe), choice.why))
            .withHint(choice.candidates.empty() ? "'shardscope recipes' lists those that are built in"
                                                : "name the one that you mean");
    said = choice.why;
    for (auto rule = choice.rename.rbegin(); rule != choice.rename.rend(); ++rule) {
        SHARDSCOPE_ASSIGN(RenameRule parsed, parseRenameRule(*rule));
        target.rename.insert(target.rename.begin(), std::move(parsed));
    }
    if (choice.recipe.empty()) return {};
    return applyRecipe(choice.recipe, request.set, source, request.assets, target);
}

std::string modelBeside(const Checkpoint& checkpoint) {
    const std::string directory = directoryOf(checkpoint);
    std::vector<std::string> places{joinPath(directory, "huggingface"), directory};
    if (!checkpoint.fileSystem && schemeOf(directory).empty()) {
        const std::string above = splitPath(canonicalPath(directory)).first;
        places.push_back(joinPath(above, "huggingface"));
        places.push_back(above);
    }
    for (const std::string& place : places) {
        const auto source = sourceFor(place, IoMode::automatic, checkpoint.fileSystem);
        if (source.ok() && source->entry.empty() && source->hasFile("config.json")) return place;
    }
    return {};
}

std::string assetsBeside(const Checkpoint& checkpoint) {
    const std::string model = modelBeside(checkpoint), own = directoryOf(checkpoint);
    return model == own || model == joinPath(own, "huggingface") ? std::string() : model;
}

std::vector<std::string> unknownToFamily(const Catalog& target, const StatedConfig& config) {
    const std::string modelType = modelTypeOf(config);
    const RecipeSource source{
        std::make_shared<const StatedConfig>(config), target,
        [](ObjectId) -> Result<Value> { return makeError(ErrorCode::unsupported, "it is not written yet"); }};
    std::optional<std::vector<std::string>> best;
    for (const BuiltinRecipe& recipe : builtinRecipes()) {
        RecipeFit fit;
        Made made;
        if (!parseName(recipe.name, fit) || fit.from != "hf" || !isOfFamily(modelType, fit.family)) continue;
        // One that cannot be applied finds nothing that it knows.
        if (!fitRecipe(source, fit, made).ok()) fit.left = weightsOf(target);
        if (!best || fit.left.size() < best->size()) best = std::move(fit.left);
    }
    return best.value_or(std::vector<std::string>());
}

}  // namespace shardscope
