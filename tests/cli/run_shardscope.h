// Runs the built program and catches what it says.
#pragma once

#include <QStringList>
#include <string>

#include <nlohmann/json.hpp>

namespace shardscope::test {

struct Outcome {
    int exitCode = -1;  // -1 when it crashed or did not start
    std::string out, err;
    // `out` as JSON. A document that is not as its schema says (docs/schemas) ends the test.
    nlohmann::json json() const;
};

Outcome runShardscope(const QStringList& arguments, int timeoutMs = 120'000);
// With stdout going to this file.
Outcome runShardscopeInto(const QString& file, const QStringList& arguments);

}  // namespace shardscope::test

// QCOMPARE cannot print JSON.
#define COMPARE_JSON(actual, expected)                                            \
    do {                                                                          \
        const nlohmann::json one = (actual), other = (expected);                  \
        QVERIFY2(one == other, (one.dump() + " is not " + other.dump()).c_str()); \
    } while (false)
