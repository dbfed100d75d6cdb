#include <algorithm>

#include <fmt/format.h>

#include "answers/schemas.h"
#include "cli/application.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

Result<int> schema(const Context& context, const std::string& name) {
    if (!name.empty()) {
        SHARDSCOPE_ASSIGN(const Json json, schemaNamed(name));
        fmt::print("{}\n", json.dump(2));
        return 0;
    }
    const Json json = schemasJson();
    if (context.json) {
        printJson(json);
        return 0;
    }
    Table table({{"name", Table::Align::left}, {"document", Table::Align::left}});
    for (const Json& each : json["schemas"])
        table.add({each["name"].get<std::string>(), each["description"].get<std::string>()});
    table.print(stdout, Style{context.colored()});
    return 0;
}

}  // namespace

void addSchema(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand("schema", "JSON Schemas of what --json prints");
    verb->footer("Examples:\n  shardscope schema\n  shardscope schema diff > diff.schema.json");
    const auto name = std::make_shared<std::string>();
    verb->add_option("name", *name, "One of them, as JSON Schema 2020-12: diff, plan/1, ...")
        ->type_name("NAME");
    verb->add_flag("--json", context.json, "One JSON document on stdout");
    verb->callback([&context, name] { context.verb = [&context, name] { return schema(context, *name); }; });
}

}  // namespace shardscope::cli
