#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/application.h"
#include "cli/one_of.h"
#include "engine/format_names.h"
#include "engine/recipe.h"
#include "validate/rules.h"

namespace shardscope::cli {
namespace {

struct OptionWords {
    std::string name, description;  // "--to"
    bool takesValue = false;
    std::vector<std::string> values{};  // those that are known; empty = any, such as a file
    bool files = false;                 // files, too
};

struct VerbWords {
    std::string name, description;
    std::vector<OptionWords> options;
    std::vector<std::string> arguments;  // what may stand for a positional beside files
};

// What is known of an option's values beside what its parser checks.
void addKnownValues(OptionWords& option) {
    if (option.name == "--to") option.values = formatNames(&FormatInfo::writes);
    if (option.name == "--format") option.values = formatNames(&FormatInfo::reads);
    if (option.name == "--accept" || option.name == "--withdraw")
        for (const RuleInfo& rule : validationRules())
            option.values.emplace_back(rule.id);
    if (option.name == "--map") {
        for (const BuiltinRecipe& recipe : builtinRecipes())
            option.values.emplace_back(recipe.name);
        option.values.emplace_back("auto");
        option.files = true;
    }
}

std::vector<VerbWords> verbWords() {
    Context context;
    const auto app = makeApp(context);
    const std::vector<CLI::App*> all = app->get_subcommands([](const CLI::App*) { return true; });
    std::vector<VerbWords> verbs;
    for (CLI::App* verb : all) {
        VerbWords words{verb->get_name(), verb->get_description(), {}, {}};
        std::vector<CLI::App*> apps = verb->get_subcommands([](const CLI::App*) { return true; });
        for (const CLI::App* nested : apps)
            words.arguments.push_back(nested->get_name());
        apps.insert(apps.begin(), verb);
        std::set<std::string> known;  // those of nested verbs are completed after any of them
        for (CLI::App* one : apps) {
            for (CLI::Option* option : one->get_options()) {
                if (option->get_positional()) {
                    const auto values = choicesOfOption(*option);
                    words.arguments.insert(words.arguments.end(), values.begin(), values.end());
                }
                for (const std::string& name : option->get_lnames()) {
                    if (!known.insert(name).second) continue;
                    OptionWords added{"--" + name, option->get_description()};
                    added.takesValue = option->get_type_size() != 0;
                    if (added.takesValue) added.values = choicesOfOption(*option);
                    addKnownValues(added);
                    words.options.push_back(std::move(added));
                }
            }
        }
        if (words.name == "help")
            for (const CLI::App* each : all)
                words.arguments.push_back(each->get_name());
        if (words.name == "recipes")
            for (const BuiltinRecipe& recipe : builtinRecipes())
                words.arguments.emplace_back(recipe.name);
        verbs.push_back(std::move(words));
    }
    return verbs;
}

std::string quoted(std::string text) {
    for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4)
        text.replace(at, 1, "'\\''");
    return "'" + text + "'";
}

// Inside a zsh _arguments specification brackets and colons have a meaning.
std::string zshText(const std::string& text) {
    std::string out;
    for (char c : text) {
        if (c == '[' || c == ']' || c == ':') out += '\\';
        out += c;
    }
    return out;
}

std::string bash() {
    std::string names, cases, values;
    for (const VerbWords& verb : verbWords()) {
        names += (names.empty() ? "" : " ") + verb.name;
        std::string options;
        for (const OptionWords& option : verb.options) {
            options += (options.empty() ? "" : " ") + option.name;
            if (option.values.empty()) continue;
            values += fmt::format("        {},{}) values=\"{}\"{} ;;\n", verb.name, option.name,
                                  fmt::join(option.values, " "), option.files ? "; files=1" : "");
        }
        cases += fmt::format("        {}) options=\"{}\"; arguments=\"{}\" ;;\n", verb.name, options,
                             fmt::join(verb.arguments, " "));
    }
    // "--to=x" is three words here.
    return fmt::format(
        "_shardscope() {{\n"
        "    local word=\"${{COMP_WORDS[COMP_CWORD]}}\" options=\"\" arguments=\"\" values=\"\" files=\"\"\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "        COMPREPLY=($(compgen -W \"{} --help --help-all --version\" -- \"$word\"))\n"
        "        return\n"
        "    fi\n"
        "    local before=\"${{COMP_WORDS[COMP_CWORD-1]}}\"\n"
        "    if [ \"$word\" = \"=\" ]; then\n"
        "        word=\"\"\n"
        "    elif [ \"$before\" = \"=\" ]; then\n"
        "        before=\"${{COMP_WORDS[COMP_CWORD-2]}}\"\n"
        "    fi\n"
        "    case \"${{COMP_WORDS[1]}},$before\" in\n{}"
        "    esac\n"
        "    if [ -n \"$values\" ]; then\n"
        "        COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
        "        [ -z \"$files\" ] || COMPREPLY+=($(compgen -f -- \"$word\"))\n"
        "        return\n"
        "    fi\n"
        "    case \"${{COMP_WORDS[1]}}\" in\n{}"
        "    esac\n"
        "    case \"$word\" in\n"
        "        -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
        "        *) COMPREPLY=($(compgen -W \"$arguments\" -- \"$word\") $(compgen -f -- \"$word\")) ;;\n"
        "    esac\n"
        "}}\n"
        "complete -o filenames -F _shardscope shardscope\n",
        names, values, cases);
}

// "[what it does]:what:(values)"
std::string zshOption(const OptionWords& option) {
    std::string spec =
        fmt::format("{}{}[{}]", option.name, option.takesValue ? "=" : "", zshText(option.description));
    if (!option.takesValue) return spec;
    if (option.values.empty()) return spec + ":value:_files";
    const std::string values = fmt::format("({})", fmt::join(option.values, " "));
    if (!option.files) return spec + ":value:" + values;
    return spec +
           fmt::format(":value:{{_alternative \"values\\:value\\:{}\" \"files\\:file\\:_files\"}}", values);
}

std::string zsh() {
    std::string names, cases;
    for (const VerbWords& verb : verbWords()) {
        names += fmt::format("        {}\n", quoted(zshText(verb.name) + ":" + verb.description));
        cases += fmt::format("        {}) _arguments", verb.name);
        for (const OptionWords& option : verb.options)
            cases += " \\\n            " + quoted(zshOption(option));
        if (!verb.arguments.empty())
            cases += " \\\n            " +
                     quoted(fmt::format(
                         "1:argument:{{_alternative \"words\\:word\\:({})\" \"files\\:file\\:_files\"}}",
                         fmt::join(verb.arguments, " ")));
        cases += " \\\n            '*:file:_files' ;;\n";
    }
    return fmt::format(
        "#compdef shardscope\n"
        "_shardscope() {{\n"
        "    local -a verbs\n    verbs=(\n{}    )\n"
        "    if (( CURRENT == 2 )); then\n"
        "        _describe 'verb' verbs\n        return\n    fi\n"
        "    local verb=$words[2]\n"
        "    shift words; (( CURRENT-- ))\n"
        "    case $verb in\n{}    esac\n"
        "}}\n"
        "if [ \"$funcstack[1]\" = _shardscope ]; then\n"  // autoloaded from a file of that name
        "    _shardscope \"$@\"\n"
        "else\n"
        "    compdef _shardscope shardscope\n"
        "fi\n",
        names, cases);
}

std::string fish() {
    std::string out = "complete -c shardscope -e\n";
    for (const VerbWords& verb : verbWords()) {
        out += fmt::format("complete -c shardscope -f -n __fish_use_subcommand -a {} -d {}\n", verb.name,
                           quoted(verb.description));
        const std::string when = fmt::format("-n '__fish_seen_subcommand_from {}'", verb.name);
        if (!verb.arguments.empty())
            out += fmt::format("complete -c shardscope {} -a {}\n", when,
                               quoted(fmt::format("{}", fmt::join(verb.arguments, " "))));
        for (const OptionWords& option : verb.options) {
            std::string values;
            if (!option.values.empty())
                values = fmt::format(" {} -a {}", option.files ? "-r" : "-x",
                                     quoted(fmt::format("{}", fmt::join(option.values, " "))));
            else if (option.takesValue)
                values = " -r";
            out += fmt::format("complete -c shardscope {} -l {}{} -d {}\n", when, option.name.substr(2),
                               values, quoted(option.description));
        }
    }
    return out;
}

}  // namespace

void addCompletion(CLI::App& app, Context& context) {
    CLI::App* verb =
        app.add_subcommand("completion", "Completion script for a shell, made from this option table");
    verb->footer("Example:\n  source <(shardscope completion bash)");
    auto shell = std::make_shared<std::string>();
    verb->add_option("shell", *shell, "bash, zsh or fish")
        ->required()
        ->check(oneOf({"bash", "zsh", "fish"}))
        ->type_name("SHELL");
    verb->callback([&context, shell] {
        context.verb = [shell]() -> Result<int> {
            fmt::print("{}", *shell == "bash" ? bash() : *shell == "zsh" ? zsh() : fish());
            return 0;
        };
    });
}

}  // namespace shardscope::cli
