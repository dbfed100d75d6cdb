// What coordinator and worker say to each other. Each message is one frame whose text is a JSON object with
// "say".
//
//   worker      hello   {version, protocol, host, pid}                       first, unasked
//   coordinator start   {words, directory, threads, identity}                the words of `convert`, and
//   where they were said worker      ready   {}                                                   plan and
//   source are the coordinator's coordinator unit    {id, spans: [[tensor, first, count], ...]} several may
//   be under way worker      beat    {bytes}                                              every second:
//   written so far worker      done    {id, read} + body                                    on disk; the body
//   is UnitResult::tiles worker      failed  {id, error}                                          id is
//   absent when it is not one unit's fault coordinator end     {} the worker ends; so it does when the stream
//   ends
#pragma once

#include <nlohmann/json.hpp>

#include "cluster/channel.h"
#include "execute/units.h"

namespace shardscope {

constexpr int kProtocol = 1;
constexpr std::chrono::milliseconds kBeat{1000};
constexpr std::chrono::milliseconds kLease = 3 * kBeat;

// The object of a frame; errors: damaged.
Result<nlohmann::json> parseMessage(const Frame& frame);
Frame message(const nlohmann::json& json, std::string body = {});

nlohmann::json identityJson(const JobIdentity& identity);
Result<JobIdentity> identityFrom(const nlohmann::json& json);
nlohmann::json unitJson(size_t id, const Unit& unit);
Result<std::pair<uint64_t, Unit>> unitFrom(const nlohmann::json& json);
nlohmann::json errorJson(const Error& error);
// What a worker says went wrong; never trusted to be short or printable.
Error errorFrom(const nlohmann::json& json);

}  // namespace shardscope
