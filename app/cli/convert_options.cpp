#include "base/units.h"
#include "cli/application.h"
#include "cli/convert.h"
#include "cli/one_of.h"
#include "cli/ranks.h"
#include "plan/request_text.h"

namespace shardscope::cli {
namespace {

// Takes what `parse` takes; anything else is a usage error that names the option.
template <class T>
CLI::Validator malformed(Result<T> (*parse)(std::string_view)) {
    return CLI::Validator(
        [parse](std::string& text) {
            const auto parsed = parse(text);
            return parsed.ok() ? std::string() : parsed.error().message;
        },
        "");
}

// What --keys takes: names as they are, or in the form of a format.
std::vector<std::string> keyForms() {
    std::vector<std::string> forms{"plain"};
    for (const Format* format : builtinFormats())
        if (!format->info().refines.empty()) forms.push_back(format->info().name);
    return forms;
}

void addOne(CLI::App& app, Context& context, const std::string& name, const std::string& description,
            const std::string& footer) {
    CLI::App* verb = app.add_subcommand(name, description);
    verb->footer(footer);
    const auto command = std::make_shared<ConvertCommand>();
    command->dryRun = name == "plan";
    ConversionRequest& request = command->request;
    const bool averages = name == "average";
    if (averages) {
        verb->add_option("checkpoints", command->ends,
                         "Checkpoints to read, in the order of training, and where the new one goes")
            ->required()
            ->expected(3, 1025)
            ->type_name("SRC SRC... DST");
    } else {
        verb->add_option("source", request.source, "Checkpoint to read: a directory or a file")
            ->required()
            ->type_name("SRC");
        verb->add_option("destination", request.destination, "Where the new one goes; must not exist")
            ->required()
            ->type_name("DST");
    }

    const std::string target = "Target";
    if (name != "reshard")
        verb->add_option("--to", request.format,
                         "Format to write (default: the source's); 'shardscope formats' lists them")
            ->type_name("FORMAT")
            ->group(target);
    verb->add_option_function<std::vector<std::string>>(
            "--variant",
            [&request, &context](const std::vector<std::string>& words) {
                // A target's variant is a name; KEY=VALUE says which checkpoint of the source is meant.
                for (const std::string& word : words)
                    (word.find('=') == std::string::npos ? request.variant : context.variant) = word;
            },
            "Variant of the format, where it has several; id=N chooses a save of a Paddle source")
        ->type_name("NAME")
        ->allow_extra_args(false)
        ->group(target);
    verb->add_option_function<std::string>(
            "--max-file-size",
            [&request](const std::string& text) {
                const auto bytes = parseBytes(text);
                if (!bytes || *bytes == 0)
                    throw CLI::ValidationError("--max-file-size", "'" + text + "' is not a size such as 5GB");
                request.maxFileSize = *bytes;
            },
            "Start a new file above this size")
        ->type_name("SIZE")
        ->group(target);
    if (name != "reshard") {
        // After --to, whose word it refines.
        verb->add_option_function<std::string>(
                "--keys",
                [&request](const std::string& keys) {
                    const Format* format = findFormat(keys);
                    if (!format) return;
                    const FormatInfo& info = format->info();
                    if (!request.format.empty() && request.format != info.refines &&
                        request.format != info.name)
                        throw CLI::ValidationError(
                            "--keys", fmt::format("{} is a way to write {}", info.name, info.refines));
                    request.format = info.name;
                },
                "Names in safetensors files: plain, or olmo (nested keys as OLMo pickles them)")
            ->check(CLI::IsMember(keyForms()).description(""))
            ->type_name("KIND")
            ->group(target);
    }

    const std::string what = "What", where = "Where each byte goes";
    const auto repeated = [verb](const std::string& option, std::vector<std::string>& values,
                                 const std::string& help, const char* value, const std::string& group) {
        return verb->add_option(option, values, help)
            ->type_name(value)
            ->allow_extra_args(false)
            ->group(group);
    };
    const auto single = [verb](const std::string& option, auto& value, const std::string& help,
                               const char* type, const std::string& group) {
        return verb->add_option(option, value, help)->type_name(type)->group(group);
    };
    repeated("--select", request.select, "Only these names (GLOB or re:REGEX, repeatable)", "GLOB", what);
    repeated("--exclude", request.exclude, "Not these names (repeatable)", "GLOB", what);
    if (averages) {
        const std::string average = "Average";
        single("--weights", request.weights,
               "uniform (default), one number for each checkpoint (1,2,4), linear, minus-sqrt or cosine (the "
               "decay of the learning rate that the average stands for), or a file of numbers",
               "WEIGHTS", average);
        verb->add_flag("--raw-weights", request.rawWeights, "Do not make the weights sum up to one")
            ->group(average);
        single("--accumulate", request.accumulate, "Sum up in fp32 (default) or fp64", "DTYPE", average)
            ->transform(oneOf<Accumulate>());
        single(
            "--others", request.notAveraged,
            "Integers and single elements: those of the last checkpoint (last, default), or an error where "
            "they differ (same)",
            "RULE", average)
            ->transform(oneOf<Average::Rule>());
        verb->add_flag("--optimizer", request.averageOptimizer,
                       "Average optimizer state too (otherwise it is left behind)")
            ->group(average);
    } else {
        verb->add_flag("--weights-only", request.weightsOnly,
                       "Parameters and buffers alone: no optimizer state, nothing else of the trainer")
            ->group(what);
    }
    single(
        "--master-weights", request.masterWeights,
        "Values of weights whose fp32 masters the source holds: auto (default; from the masters where a cast "
        "asks for more than the weight has), use (from the masters, as float32 without a cast) or ignore",
        "HOW", what)
        ->transform(oneOf<MasterWeights>());
    verb->add_flag("--skip-damaged", request.skipDamaged,
                   "Leave out and list what is damaged or not a plain array (otherwise an error)")
        ->group(what);
    repeated("--rename", request.rename, "Regular expression and replacement for names (repeatable)",
             "FROM=TO", what)
        ->check(malformed(parseRenameRule));
    repeated("--dtype", request.cast, "Cast matching tensors (repeatable; the first match wins)",
             "GLOB=DTYPE", what)
        ->check(malformed(parseCastRule));
    single("--map", request.map,
           "Recipe for names, shapes and dtypes: a file, or one of 'shardscope recipes'", "RECIPE", what);
    single(
        "--expect", request.expect,
        "Write nothing unless the result has the tensors of this model: its weights, or the layers, experts "
        "and vocabulary of its config.json",
        "DIR", what);
    repeated("--set", request.set, "Value of a parameter of the recipe (repeatable)", "NAME=VALUE", what);
    single("--objects", request.objectsFile,
           "Keep objects that the target cannot hold in this torch.save file", "FILE.pt", what);
    single(
        "--assets", request.assets,
        "Configuration and tokenizer beside safetensors: auto (default; those of the checkpoint), none, or a "
        "directory",
        "DIR", what);
    verb->add_flag("--strict", request.strict, "Refuse to leave anything out")->group(what);
    static const std::map<std::string, FillGaps> fills{{"nan", FillGaps::nan}, {"zero", FillGaps::zero}};
    if (!averages)
        single("--fill-gaps", request.fillGaps,
               "Fill elements that no chunk holds with nan or zero (otherwise an error)", "VALUE", what)
            ->transform(oneOf(fills));

    single("--mesh", request.mesh, "Ranks of the target, e.g. dp=2,tp=4 (the last axis varies fastest)",
           "MESH", where)
        ->check(malformed(parseMesh));
    repeated("--shard", request.shard,
             "Shard matching tensors: GLOB:AXIS=DIM,... (repeatable; the first match wins)", "RULE", where)
        ->check(malformed(parseShardRule));
    repeated("--stage", request.stage,
             "Put matching tensors on one coordinate of an axis: GLOB:pp=1 (repeatable)", "RULE", where)
        ->check(malformed(parseStageRule));
    single("--like", request.like, "Same names and placement as this checkpoint", "CHECKPOINT", where);
    single("--split", request.split, "Rule for sizes that do not divide: torch (default), even or paddle",
           "RULE", where)
        ->transform(oneOf<SplitRule>());

    if (name != "plan") {
        const std::string run = "How";
        single("--verify", request.verify,
               "digest (re-read the destination; default), full (the source again too) or none", "HOW", run)
            ->transform(oneOf<Verify>());
        verb->add_flag("--resume", request.resume, "Continue an interrupted job")->group(run);
        verb->add_flag("--overwrite", request.overwrite,
                       "Replace an existing destination, once the new one is whole")
            ->group(run);
        verb->add_flag("--dry-run", command->dryRun, "Only show the plan")->group(run);
        single("--report", command->report, "Write the report to this file as JSON", "FILE", run);
    }
    addRankWords(*verb, *command);
    if (name != "plan") {
        addPartWords(*verb, command->parts, "Verify and publish what all parts have done", true);
        single("--remote-program", context.remoteProgram,
               "shardscope on the other hosts (default: this one; ssh copies it there once)", "PATH",
               kWhoWorks);
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
        command->request.sourceOptions = context.sourceWords();
        command->request.threads = context.threads;
        command->request.memory = context.memory;
        command->request.io = context.io;
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
