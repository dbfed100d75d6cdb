#include <cstdlib>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/own_program.h"
#include "base/thread_pool.h"
#include "cli/application.h"
#include "cli/ranks.h"
#include "cli/text.h"
#include "places/places_facts.h"
#include "storage/url.h"

namespace shardscope::cli {
namespace {

struct Disk {
    std::string path, type;
    uint64_t freeBytes = 0;
    bool exists = false, writable = false, direct = false, clone = false;
};

std::string fileSystemName(long magic) {
    switch (static_cast<unsigned long>(magic)) {
        case 0xEF53:
            return "ext4";
        case 0x58465342:
            return "xfs";
        case 0x9123683E:
            return "btrfs";
        case 0x01021994:
            return "tmpfs";
        case 0x6969:
            return "nfs";
        case 0x0BD00BD0:
            return "lustre";
        case 0x47504653:
            return "gpfs";
        case 0x65735546:
            return "fuse";
        case 0x794C7630:
            return "overlayfs";
        case 0x2FC12FC1:
            return "zfs";
        default:
            return fmt::format("0x{:x}", magic);
    }
}

// Tries with two small unnamed files in the directory; nothing stays behind.
Disk probeDisk(const std::string& path) {
    Disk disk;
    disk.path = path;
    struct statfs info {};
    if (statfs(path.c_str(), &info) != 0) return disk;
    disk.exists = true;
    disk.type = fileSystemName(info.f_type);
    disk.freeBytes = static_cast<uint64_t>(info.f_bavail) * static_cast<uint64_t>(info.f_bsize);
    const int a = open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    const int b = open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    disk.writable = a >= 0 && b >= 0;
    if (disk.writable) {
        void* block = nullptr;
        if (posix_memalign(&block, 4096, 4096) == 0) {
            std::fill_n(static_cast<char*>(block), 4096, 'x');
            const bool written = pwrite(a, block, 4096, 0) == 4096;
            disk.clone = written && ioctl(b, FICLONE, a) == 0;
            disk.direct = fcntl(a, F_SETFL, O_DIRECT) == 0 && pwrite(a, block, 4096, 0) == 4096;
            std::free(block);
        }
    }
    if (a >= 0) close(a);
    if (b >= 0) close(b);
    return disk;
}

std::string findProgram(const std::string& name) {
    const char* path = std::getenv("PATH");
    std::string_view rest = path ? path : "";
    while (!rest.empty()) {
        const std::string_view part = rest.substr(0, rest.find(':'));
        rest = part.size() == rest.size() ? std::string_view{} : rest.substr(part.size() + 1);
        const std::string candidate = std::string(part) + "/" + name;
        if (access(candidate.c_str(), X_OK) == 0) return candidate;
    }
    return {};
}

std::string besideThisProgram(const std::string& name) {
    const std::string path = besideOwnProgram(name);
    return access(path.c_str(), X_OK) == 0 ? path : std::string();
}

struct Part {
    const char* name;
    std::string path;
    const char* use;
    std::string missing = "not found";
};

Part libraryPart(const char* name, Result<std::string> (*find)(), const char* use) {
    auto found = find();
    return found.ok() ? Part{name, std::move(found).value(), use}
                      : Part{name, "", use, found.error().message};
}

std::vector<Part> optionalParts(const Context& context) {
    const Accelerator has = acceleratorOf(context);
    return {
        libraryPart("libtorch", has.findTorch, "ranks in which one reads for all"),
        libraryPart("NCCL", has.findNccl,
                    "the same between GPUs (tried on one; NCCL between several has not run yet)"),
        {"window", besideThisProgram("shardscope-gui"), "the desktop application"},
        {"ssh", findProgram("ssh"), "checkpoints and jobs on other hosts"},
        {"slurm", findProgram("sbatch"), "jobs under Slurm"},
        {"gpu driver", findProgram("nvidia-smi"), "ranks that cast and hash on GPUs"},
    };
}

struct Machine {
    utsname system{};
    uint64_t memory =
        static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    std::vector<Part> parts;
    std::vector<Disk> disks;
    std::vector<PlaceFacts> places;
    HttpFacts http = httpFacts();
};

Json placesJson(const std::vector<PlaceFacts>& places) {
    Json json = Json::array();
    for (const PlaceFacts& p : places) {
        json.push_back({{"place", p.place},
                        {"endpoint", p.endpoint},
                        {"credentials", p.credentials},
                        {"reached", p.reached},
                        {"said", p.said}});
        if (!p.region.empty()) json.back()["region"] = p.region;
    }
    return json;
}

Json machineJson(const Machine& machine) {
    Json json{{"schema", "shardscope.doctor/1"}, {"version", SHARDSCOPE_VERSION}};
    json["system"] = {{"kernel", fmt::format("{} {}", machine.system.sysname, machine.system.release)},
                      {"machine", machine.system.machine},
                      {"cores", availableCores()},
                      {"memory", machine.memory}};
    json["parts"] = Json::array();
    for (const Part& part : machine.parts)
        json["parts"].push_back(
            {{"name", part.name}, {"found", !part.path.empty()}, {"path", part.path}, {"use", part.use}});
    json["disks"] = Json::array();
    for (const Disk& d : machine.disks) {
        json["disks"].push_back({{"path", d.path},
                                 {"exists", d.exists},
                                 {"type", d.type},
                                 {"free", d.freeBytes},
                                 {"writable", d.writable},
                                 {"direct_io", d.direct},
                                 {"clone", d.clone}});
    }
    json["places"] = placesJson(machine.places);
    json["http"] = {{"built_in", machine.http.builtIn},
                    {"certificates", machine.http.certificates},
                    {"proxy", machine.http.proxy},
                    {"no_proxy", machine.http.noProxy}};
    return json;
}

std::string httpText(const HttpFacts& http) {
    if (!http.builtIn) return "HTTP: this program was built without it";
    std::string text = "HTTP: certificates ";
    text += http.certificates.empty() ? "of libcurl" : printable(http.certificates);
    if (!http.proxy.empty()) text += ", proxy " + printable(http.proxy);
    if (!http.proxy.empty() && !http.noProxy.empty())
        text += fmt::format(" (not for {})", printable(http.noProxy));
    return text;
}

void printPlaces(const Machine& machine, const Style& style) {
    using A = Table::Align;
    Table table({{"place", A::left},
                 {"endpoint", A::left},
                 {"region", A::left},
                 {"credentials", A::left},
                 {"", A::left}});
    for (const PlaceFacts& p : machine.places)
        table.add({printable(p.place), printable(p.endpoint), printable(p.region), printable(p.credentials),
                   (p.reached ? "reached: " : "not reached: ") + printable(p.said)});
    table.print(stdout, style);
    fmt::print("{}\n", httpText(machine.http));
}

void printMachine(const Machine& machine, const Style& style) {
    fmt::print("shardscope {} on {} {}, {}, {} cores, {}\n\n", SHARDSCOPE_VERSION, machine.system.sysname,
               machine.system.release, machine.system.machine, availableCores(), bytesText(machine.memory));
    using A = Table::Align;
    Table partTable({{"part", A::left}, {"", A::left}, {"for", A::left}});
    for (const Part& part : machine.parts)
        partTable.add({part.name, part.path.empty() ? part.missing : part.path, part.use});
    partTable.print(stdout, style);
    fmt::print("\n");
    Table table({{"disk", A::left},
                 {"type", A::left},
                 {"free", A::right},
                 {"writable", A::left},
                 {"direct I/O", A::left},
                 {"clones", A::left}});
    const auto yes = [](bool b) { return b ? "yes" : "no"; };
    for (const Disk& d : machine.disks)
        table.add({printable(d.path), d.exists ? d.type : "not found", bytesText(d.freeBytes),
                   yes(d.writable), yes(d.direct), yes(d.clone)});
    table.print(stdout, style);
    fmt::print("\n");
    printPlaces(machine, style);
}

Result<int> doctor(const Context& context, const std::vector<std::string>& paths) {
    std::vector<std::string> places, disks;
    for (const std::string& path : paths)
        (schemeOf(path).empty() ? disks : places).push_back(path);
    if (disks.empty()) {
        const char* temporary = std::getenv("TMPDIR");
        disks = {".", temporary ? temporary : "/tmp"};
    }
    Machine machine;
    uname(&machine.system);
    machine.parts = optionalParts(context);
    for (const std::string& path : disks)
        machine.disks.push_back(probeDisk(path));
    machine.places = placeFacts(places);
    if (context.json)
        printJson(machineJson(machine));
    else
        printMachine(machine, Style{context.colored()});
    return 0;
}

}  // namespace

void addDoctor(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "doctor", "This machine: version, optional parts, disks and what they can do, places and as whom");
    verb->footer("Example:\n  shardscope doctor /checkpoints s3://bucket/run");
    auto paths = std::make_shared<std::vector<std::string>>();
    verb->add_option("path", *paths,
                     "Directories to look at (default: here and the temporary directory), and what is to be "
                     "listed in buckets, on the hub and on web servers")
        ->type_name("PATH");
    verb->add_flag("--json", context.json, "One JSON document on stdout");
    verb->callback(
        [&context, paths] { context.verb = [&context, paths] { return doctor(context, *paths); }; });
}

}  // namespace shardscope::cli
