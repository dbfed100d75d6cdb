// Paths of places that are reached by HTTP: "s3://bucket/run/step-100", "gs://bucket/x",
// "hf://org/model@main/x", "https://host/x". They are text: nothing makes them absolute, normalizes them or
// follows links in them, which would turn "s3://" into "s3:/". Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shardscope {

// "s3", "gs", "hf", "http" or "https"; empty for a path of this machine.
std::string_view schemeOf(std::string_view path);

// Bytes of `path` that name the place itself and have no parent: "s3://bucket", "https://host:8000",
// "hf://org/model@main", "hf://datasets/org/name". 0 for a path of this machine.
size_t placeLength(std::string_view path);

// A path as it may be shown and kept. A web address loses what may be secret in it: a user and password
// before '@', and a signature after '?' or '#'. So does an address of any other scheme than those of paths,
// such as that of a proxy. Other paths stay as they are.
std::string withoutSecrets(std::string_view path);

}  // namespace shardscope
