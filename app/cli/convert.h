// plan, convert and reshard: what their command lines ask for, and carrying it out; options that `diff`
// shares.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "answers/conversion.h"
#include "cli/context.h"
#include "survey/flow_picture.h"

namespace shardscope::cli {

// What is said of the ranks beside --on, by each process for itself.
struct RankWords {
    std::string master, address;
    std::optional<int> joinTimeout{};  // seconds
    std::string torchLibrary{};
    std::string given() const;  // one of the options, or empty
};

struct ConvertCommand {
    ConversionRequest request;
    std::vector<std::string>
        ends;             // of `average`: the sources and the destination, before they are told apart
    std::string report;   // a file for the report; empty = none
    bool dryRun = false;  // only the plan is shown
    bool flow = false;    // with who reads what from whom
    PartRequest parts;
    RankWords ranks;
    bool inParts() const { return parts.given(); }
};

// The options of the fields (engine/request.h) that the verb takes, of these groups.
void addFields(CLI::App& verb, Context& context, ConversionRequest& request,
               std::initializer_list<std::string_view> groups);

// As `shardscope convert`: alone, or with the workers or ranks that `on` names. The other as what `execution`
// says.
Result<int> convert(const Context& context, const ConvertCommand& command);
Result<int> convert(const Context& context, const ConvertCommand& command, const Execution& execution);

// What is shown before, and after (convert_report.cpp). Paths are shown as the user gave them.
Result<int> showPlan(const Context& context, const Conversion& conversion, bool flow);
std::string flowText(const FlowPicture& flow);  // a line for each rank of the target
void sayBefore(const Plan& plan);
// What one part has done, where it has not finished the conversion.
void sayPart(const Context& context, const Conversion& conversion, const Parts& parts);
void showReport(const Context& context, const Conversion& conversion, const ConvertReport& report,
                Verify verify);

}  // namespace shardscope::cli
