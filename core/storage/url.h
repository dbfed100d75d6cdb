// Paths of places that are reached by HTTP: "s3://bucket/run/step-100", "gs://bucket/x",
// "hf://org/model@main/x", "https://host/x". They are text: nothing makes them absolute, normalizes them or
// follows links in them, which would turn "s3://" into "s3:/". Pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace shardscope {

// "s3", "gs", "hf", "http" or "https"; empty for a path of this machine.
std::string_view schemeOf(std::string_view path);

// Bytes of `path` that name the place itself and have no parent: "s3://bucket", "https://host:8000",
// "hf://org/model@main", "hf://datasets/org/name". 0 for a path of this machine.
size_t placeLength(std::string_view path);

}  // namespace shardscope
