#include <algorithm>

#include "base/option_words.h"
#include "base/units.h"
#include "cli/application.h"
#include "cli/convert.h"
#include "cli/help.h"
#include "cli/one_of.h"
#include "cli/part_option.h"
#include "cli/ranks.h"

namespace shardscope::cli {
namespace {

template <class T>
CLI::Validator choiceOf(const ConvertField& field) {
    std::map<std::string, T> words;
    for (const auto& [word, choice] : choicesOf(T{}))
        if (field.choices.empty() || std::ranges::count(field.choices, word)) words.emplace(word, choice);
    return oneOf(words);
}

// The option of a field, which keeps what it is given.
template <class T>
CLI::Option* addField(CLI::App& verb, const std::string& name, T& value, const ConvertField& field) {
    if constexpr (std::is_same_v<T, bool>) {
        return verb.add_flag(name, value, field.help);
    } else if constexpr (std::is_same_v<T, uint64_t>) {
        const auto take = [name, &value](const std::string& text) {
            const auto bytes = parseBytes(text);
            if (!bytes || *bytes == 0)
                throw CLI::ValidationError(name, "'" + text + "' is not a size such as 5GB");
            value = *bytes;
        };
        return verb.add_option_function<std::string>(name, take, field.help);
    } else {
        CLI::Option* option = verb.add_option(name, value, field.help);
        if constexpr (std::is_enum_v<T>) option->transform(choiceOf<T>(field));
        if constexpr (std::is_same_v<T, std::string>)
            if (!field.choices.empty()) option->check(oneOf({field.choices.begin(), field.choices.end()}));
        if constexpr (std::is_same_v<T, std::vector<std::string>>) option->allow_extra_args(false);
        return option;
    }
}

// A target's variant is a name; KEY=VALUE says which checkpoint of the source is meant.
CLI::Option* addVariant(CLI::App& verb, Context& context, ConversionRequest& request,
                        const ConvertField& field) {
    const auto take = [&request, &context](const std::vector<std::string>& words) {
        for (const std::string& word : words)
            (word.find('=') == std::string::npos ? request.variant : context.variant) = word;
    };
    return verb.add_option_function<std::vector<std::string>>("--variant", take, field.help)
        ->allow_extra_args(false);
}

}  // namespace

void addFields(CLI::App& verb, Context& context, ConversionRequest& request,
               std::initializer_list<std::string_view> groups) {
    for (const ConvertField& field : convertFields()) {
        if (!std::ranges::count(groups, field.group) || !(field.verbs & verbWithFields(verb.get_name())))
            continue;
        CLI::Option* option =
            field.option == "variant"
                ? addVariant(verb, context, request, field)
                : std::visit(
                      [&](auto member) {
                          return addField(verb, commandOption(field.option), request.*member, field);
                      },
                      field.member);
        option->group(field.group);
        if (*field.type) option->type_name(field.type);
        if (*field.usual) option->default_str(field.usual);
        if (field.malformed)
            option->check(CLI::Validator([&field](std::string& text) { return field.malformed(text); }, ""));
    }
}

namespace {

// After --to, whose word it refines.
void addKeys(CLI::App& verb, ConversionRequest& request) {
    const auto take = [&request](const std::string& keys) {
        if (const Status taken = takeKeys(request, keys); !taken.ok())
            throw CLI::ValidationError("--keys", taken.error().message);
    };
    verb.add_option_function<std::string>(
            "--keys", take, "Names in safetensors files: plain, or olmo (nested keys as OLMo pickles them)")
        ->type_name("KIND")
        ->group("Target");
}

// The checkpoints to read, and where the new one goes.
void addEnds(CLI::App& verb, ConvertCommand& command) {
    if (verb.get_name() == "average") {
        verb.add_option("checkpoints", command.ends,
                        "Checkpoints to read, in the order of training, and where the new one goes")
            ->required()
            ->expected(3, 1025)
            ->type_name("SRC SRC... DST");
        return;
    }
    verb.add_option("source", command.request.source, "Checkpoint to read: a directory or a file")
        ->required()
        ->type_name("SRC");
    verb.add_option("destination", command.request.destination, "Where the new one goes; must not exist")
        ->required()
        ->type_name("DST");
}

void addOne(CLI::App& app, Context& context, const std::string& name, const std::string& description,
            const std::string& footer) {
    CLI::App* verb = app.add_subcommand(name, description);
    verb->footer(footer);
    const auto command = std::make_shared<ConvertCommand>();
    command->dryRun = name == "plan";
    addEnds(*verb, *command);
    addFields(*verb, context, command->request, {"Target"});
    if (name != "reshard") addKeys(*verb, command->request);
    addFields(*verb, context, command->request, {"What", "Average", "Where each byte goes", "How"});
    if (name == "plan")
        verb->add_flag("--flow", command->flow, "Also how much each rank reads from each file")->group("How");
    if (name != "plan") {
        verb->add_flag("--dry-run", command->dryRun, "Only show the plan")->group("How");
        verb->add_option("--report", command->report, "Write the report to this file as JSON")
            ->type_name("FILE")
            ->group("How");
    }
    addFields(*verb, context, command->request, {kWhoWorks, kForRanks});
    addRankWords(*verb, *command);
    if (name != "plan") {
        addPartWords(*verb, command->parts, "Verify and publish what all parts have done", true);
        addOtherProgram(*verb, context);
    }
    addCommon(*verb, context, true);
    verb->callback([&context, command] {
        if (!command->ends.empty()) {
            std::vector<std::string>& inputs = command->request.average = command->ends;
            command->request.destination = std::move(inputs.back());
            inputs.pop_back();
            command->request.source = std::move(inputs.back());
            inputs.pop_back();
        }
        command->request.opening = context;
        static_cast<WorkLimits&>(command->request) = context;
        context.conversion = command;
        context.verb = [&context, command] { return convert(context, *command); };
    });
}

}  // namespace

void addConvert(CLI::App& app, Context& context) {
    addOne(app, context, "plan", "What a conversion would read, write and leave out (convert --dry-run)",
           "Example:\n  shardscope plan /checkpoints/step-1000 model/ --to safetensors --weights-only");
    addOne(app, context, "convert", "Convert to another format or sharding, bit for bit, in bounded memory",
           "Examples:\n  shardscope convert /checkpoints/step-1000 model/ --to safetensors --weights-only\n"
           "  shardscope convert model.pt dcp/ --to dcp --mesh dp=2,tp=4 --shard '*.weight:tp=0,dp=0'\n"
           "  srun -N 4 shardscope convert /local/step-1000 /shared/model --to safetensors --on ranks\n\n"
           "The destination appears whole or not at all; --resume continues an interrupted job.");
    addOne(
        app, context, "average", "Average the values of several checkpoints of one model",
        "Examples:\n  shardscope average run/step-1000 run/step-2000 run/step-3000 averaged/\n"
        "  shardscope average run/iter_* merged/ --weights minus-sqrt --to safetensors\n\n"
        "The result has the format, names and dtypes of the last checkpoint, unless the options say others.");
    addOne(app, context, "reshard", "Convert to another sharding of the same format",
           "Example:\n  shardscope reshard /checkpoints/step-1000 /checkpoints/step-1000-tp8 --mesh tp=8 "
           "--shard '*:tp=0'");
}

}  // namespace shardscope::cli
