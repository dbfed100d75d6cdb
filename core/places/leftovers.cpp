#include "places/leftovers.h"

#include <algorithm>

#include "places/bucket_upload.h"
#include "places/places.h"
#include "storage/url.h"

namespace shardscope {
namespace {

// Whether a key is below the staging directory of some destination.
bool isStaged(std::string_view key) {
    for (size_t slash = key.find('/'); slash != std::string_view::npos; slash = key.find('/')) {
        const std::string_view name = key.substr(0, slash);
        if (name.starts_with('.') && name.ends_with(".shardscope-partial")) return true;
        key.remove_prefix(slash + 1);
    }
    return false;
}

}  // namespace

Result<Leftovers> Leftovers::below(const std::string& path) {
    const std::string_view scheme = schemeOf(path);
    const std::string root = path.substr(0, placeLength(path));
    const std::string bucket = scheme.empty() ? "" : root.substr(scheme.size() + 3);
    if ((scheme != "s3" && scheme != "gs") || bucket.empty())
        return makeError(ErrorCode::usage, "is not in a bucket")
            .inFile(path)
            .withHint("name a place in a bucket, such as s3://bucket/run");
    std::string key = path.size() > root.size() ? path.substr(root.size() + 1) : "";
    while (key.ends_with('/'))
        key.pop_back();

    Leftovers found;
    SHARDSCOPE_ASSIGN(found.place_, scheme == "s3" ? s3Place(bucket) : googlePlace(bucket));
    ObjectPlace& place = *found.place_;
    const auto add = [&](const ObjectState& state, const std::string& upload) {
        found.all_.push_back({root + "/" + state.key, upload, state.size, state.modifiedNs});
    };
    SHARDSCOPE_ASSIGN(const auto uploads, place.unfinished(key));
    for (const ObjectState& upload : uploads) {
        if (key.empty() || upload.key == key || upload.key.starts_with(key + "/"))
            add(upload, upload.version);
    }
    std::vector<std::string> prefixes = {key.empty() ? "" : key + "/"};
    if (!key.empty()) prefixes.push_back(stagingKey(place, key));
    for (const std::string& prefix : prefixes) {
        SHARDSCOPE_ASSIGN(const auto objects, listAll(place, prefix));
        for (const ObjectState& object : objects) {
            if (isStaged(object.key)) add(object, "");
        }
    }
    std::stable_partition(found.all_.begin(), found.all_.end(),
                          [](const Leftover& l) { return !l.path.ends_with("/claim"); });
    return found;
}

Status Leftovers::remove(const Leftover& leftover) const {
    const std::string key = leftover.path.substr(place_->root().size() + 1);
    return leftover.upload.empty() ? place_->remove(key) : place_->abandon(key, leftover.upload);
}

}  // namespace shardscope
