#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/application.h"

namespace shardscope::cli {
namespace {

struct VerbWords {
    std::string name, description;
    std::vector<std::pair<std::string, std::string>> options;  // --name, description
};

std::vector<VerbWords> verbWords() {
    Context context;
    const auto app = makeApp(context);
    std::vector<VerbWords> verbs;
    for (const CLI::App* verb : app->get_subcommands({})) {
        VerbWords words{verb->get_name(), verb->get_description(), {}};
        std::vector<const CLI::App*> apps = verb->get_subcommands({});
        apps.insert(apps.begin(), verb);
        std::set<std::string> known;  // those of nested verbs are completed after any of them
        for (const CLI::App* one : apps) {
            for (const CLI::Option* option : one->get_options()) {
                for (const std::string& name : option->get_lnames())
                    if (known.insert(name).second)
                        words.options.emplace_back("--" + name, option->get_description());
            }
        }
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
    std::string names, cases;
    for (const VerbWords& verb : verbWords()) {
        names += (names.empty() ? "" : " ") + verb.name;
        std::string options;
        for (const auto& [name, description] : verb.options)
            options += (options.empty() ? "" : " ") + name;
        cases += fmt::format("        {}) options=\"{}\" ;;\n", verb.name, options);
    }
    return fmt::format(
        "_shardscope() {{\n"
        "    local word=\"${{COMP_WORDS[COMP_CWORD]}}\" options=\"\"\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "        COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\"))\n"
        "        return\n"
        "    fi\n"
        "    case \"${{COMP_WORDS[1]}}\" in\n{}"
        "    esac\n"
        "    case \"$word\" in\n"
        "        -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
        "        *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
        "    esac\n"
        "}}\n"
        "complete -o filenames -F _shardscope shardscope\n",
        names, cases);
}

std::string zsh() {
    std::string names, cases;
    for (const VerbWords& verb : verbWords()) {
        names += fmt::format("        {}\n", quoted(zshText(verb.name) + ":" + verb.description));
        cases += fmt::format("        {}) _arguments", verb.name);
        for (const auto& [name, description] : verb.options)
            cases += " \\\n            " + quoted(fmt::format("{}[{}]", name, zshText(description)));
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
        for (const auto& [name, description] : verb.options) {
            out += fmt::format("complete -c shardscope -n '__fish_seen_subcommand_from {}' -l {} -d {}\n",
                               verb.name, name.substr(2), quoted(description));
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
        ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""))
        ->type_name("SHELL");
    verb->callback([&context, shell] {
        context.verb = [shell]() -> Result<int> {
            fmt::print("{}", *shell == "bash" ? bash() : *shell == "zsh" ? zsh() : fish());
            return 0;
        };
    });
}

}  // namespace shardscope::cli
