// The front of this room: buckets, the Hugging Face hub and web servers as read-only file systems.
// Credentials come from the environment and from the files of the stores' own tools.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/file_system.h"
#include "storage/object_place.h"

namespace shardscope {

// Files below "s3://bucket", "gs://bucket", "hf://org/model", "https://host"; `path` may be any path in the
// place. Sends no request. Errors: usage (no bucket, or a URL with a user or password).
struct Place {
    std::shared_ptr<FileSystem> files;
    std::string path;  // as shown and opened: without a slash at its end, and without the part of a URL after
                       // '?', which may be a secret signature
};
Result<Place> placeOf(const std::string& path);

// The object stores themselves. Private to this room and to its tests.
Result<std::shared_ptr<ObjectPlace>> s3Place(const std::string& bucket);
Result<std::shared_ptr<ObjectPlace>> googlePlace(const std::string& bucket);
Result<std::shared_ptr<ObjectPlace>> hubPlace(const std::string& root);
// "hf://org/model@main/file" of the hub's web page of a repository or a file; empty for any other address.
std::string hubPathOf(const std::string& url);
// `query`: follows '?' in each request; empty = none.
Result<std::shared_ptr<ObjectPlace>> webPlace(const std::string& root, const std::string& query);

// All objects whose keys begin with `prefix`, in byte order. Errors: those of the place, remote for an
// inconsistent listing.
Result<std::vector<ObjectState>> listAll(ObjectPlace& place, const std::string& prefix);

// Any of these stores as files. A directory is a prefix that keys share up to a slash. One listing brings its
// whole tree, unless that is too long. Listings are kept: only a new FileSystem sees later changes.
std::shared_ptr<FileSystem> objectFileSystem(std::shared_ptr<ObjectPlace> place);

}  // namespace shardscope
