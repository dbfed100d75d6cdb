#include "survey/module_tree.h"

#include <algorithm>
#include <numeric>

namespace shardscope {

namespace {

bool isDigit(char c) {
    return c >= '0' && c <= '9';
}

// Order of one part of a name against another: negative, zero or positive.
int compareNatural(std::string_view a, std::string_view b) {
    size_t i = 0, j = 0;
    while (i < a.size() && j < b.size()) {
        if (isDigit(a[i]) && isDigit(b[j])) {
            const size_t ai = i, bj = j;
            while (i < a.size() && a[i] == '0')
                ++i;
            while (j < b.size() && b[j] == '0')
                ++j;
            const size_t as = i, bs = j;
            while (i < a.size() && isDigit(a[i]))
                ++i;
            while (j < b.size() && isDigit(b[j]))
                ++j;
            if (i - as != j - bs) return i - as < j - bs ? -1 : 1;
            if (const int order = a.substr(as, i - as).compare(b.substr(bs, j - bs))) return order;
            if (i - ai != j - bj) return i - ai < j - bj ? -1 : 1;  // 01 after 1
            continue;
        }
        if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]) ? -1 : 1;
        ++i;
        ++j;
    }
    return a.size() - i == b.size() - j ? 0 : a.size() - i < b.size() - j ? -1 : 1;
}

// Part by part, so that "a.b" comes before "a-b": modules stay together.
int comparePaths(std::string_view a, std::string_view b) {
    while (true) {
        const size_t da = a.find('.'), db = b.find('.');
        if (const int order = compareNatural(a.substr(0, da), b.substr(0, db))) return order;
        if (da == std::string_view::npos || db == std::string_view::npos) {
            if (da == db) return 0;
            return da == std::string_view::npos ? -1 : 1;
        }
        a.remove_prefix(da + 1);
        b.remove_prefix(db + 1);
    }
}

}  // namespace

bool naturalLess(std::string_view a, std::string_view b) {
    return comparePaths(a, b) < 0;
}

ModuleTree ModuleTree::buildAll(const Catalog& catalog, const StopToken& stop) {
    std::vector<TensorId> all(catalog.tensorCount());
    std::iota(all.begin(), all.end(), 0U);
    return build(catalog, all, stop);
}

ModuleTree ModuleTree::build(const Catalog& catalog, const std::vector<TensorId>& tensors,
                             const StopToken& stop) {
    ModuleTree tree;
    tree.catalog_ = &catalog;
    tree.order_ = tensors;
    std::sort(tree.order_.begin(), tree.order_.end(), [&](TensorId a, TensorId b) {
        const int order = comparePaths(catalog.name(a), catalog.name(b));
        return order ? order < 0 : a < b;
    });
    tree.nodeOf_.assign(catalog.tensorCount(), kRoot);

    const auto add = [&](Node parent, TensorId sample, uint32_t labelBegin, uint32_t nameEnd, TensorId tensor,
                         uint32_t at) {
        const auto node = static_cast<Node>(tree.parent_.size());
        tree.parent_.push_back(parent);
        tree.row_.push_back(0);
        tree.childCount_.push_back(0);
        tree.tensors_.push_back(0);
        tree.bytes_.push_back(0);
        tree.tensor_.push_back(tensor);
        tree.sample_.push_back(sample);
        tree.labelBegin_.push_back(labelBegin);
        tree.nameEnd_.push_back(nameEnd);
        tree.orderBegin_.push_back(at);
        tree.orderEnd_.push_back(at);
        if (node != kRoot) tree.row_[node] = tree.childCount_[parent]++;
        return node;
    };
    add(kRoot, kNone, 0, 0, kNone, 0);

    // Names come sorted by parts, so the open modules are a stack that shares its beginning with the next
    // name.
    std::vector<Node> open{kRoot};
    for (uint32_t i = 0; i < tree.order_.size(); ++i) {
        if (i % 65536 == 0 && stop.stopRequested()) return {};
        const TensorId t = tree.order_[i];
        const std::string_view name = catalog.name(t);
        // How many open modules hold this name.
        size_t keep = 1;
        while (keep < open.size()) {
            const uint32_t end = tree.nameEnd_[open[keep]];
            if (name.size() <= end || name[end] != '.' || name.substr(0, end) != tree.fullName(open[keep]))
                break;
            ++keep;
        }
        open.resize(keep);
        uint32_t begin = keep > 1 ? tree.nameEnd_[open.back()] + 1 : 0;
        for (size_t dot = name.find('.', begin); dot != std::string_view::npos; dot = name.find('.', begin)) {
            open.push_back(add(open.back(), t, begin, static_cast<uint32_t>(dot), kNone, i));
            begin = static_cast<uint32_t>(dot) + 1;
        }
        const Node leaf = add(open.back(), t, begin, static_cast<uint32_t>(name.size()), t, i);
        tree.nodeOf_[t] = leaf;
        tree.bytes_[leaf] = catalog.aliasOf(t) == kNone ? catalog.bytes(t) : 0;
        tree.tensors_[leaf] = 1;
        tree.orderEnd_[leaf] = i + 1;
    }

    // Children after their parents, so one pass backwards adds everything up.
    for (size_t n = tree.parent_.size(); n-- > 1;) {
        const Node parent = tree.parent_[n];
        tree.bytes_[parent] += tree.bytes_[n];
        tree.tensors_[parent] += tree.tensors_[n];
        tree.orderEnd_[parent] = std::max(tree.orderEnd_[parent], tree.orderEnd_[n]);
    }
    tree.firstChild_.resize(tree.parent_.size());
    uint32_t next = 0;
    for (size_t n = 0; n < tree.parent_.size(); ++n) {
        tree.firstChild_[n] = next;
        next += tree.childCount_[n];
    }
    tree.children_.resize(next);
    for (size_t n = 1; n < tree.parent_.size(); ++n)
        tree.children_[tree.firstChild_[tree.parent_[n]] + tree.row_[n]] = static_cast<Node>(n);
    return tree;
}

std::string_view ModuleTree::fullName(Node n) const {
    return n == kRoot ? std::string_view() : catalog_->name(sample_[n]).substr(0, nameEnd_[n]);
}

std::string_view ModuleTree::label(Node n) const {
    return n == kRoot ? std::string_view() : fullName(n).substr(labelBegin_[n]);
}

ModuleTree::Node ModuleTree::nodeOf(TensorId tensor) const {
    return tensor < nodeOf_.size() ? nodeOf_[tensor] : kRoot;
}

ModuleTree::Node ModuleTree::find(std::string_view wanted) const {
    Node node = kRoot;
    size_t begin = 0;
    while (begin <= wanted.size() && !empty()) {
        const size_t end = std::min(wanted.find('.', begin), wanted.size());
        Node found = kRoot;
        for (uint32_t row = 0; row < childCount_[node]; ++row) {
            const Node candidate = child(node, row);
            if (label(candidate) != wanted.substr(begin, end - begin)) continue;
            found = candidate;
            // On the way down a module is wanted, at the end whatever there is.
            if (end == wanted.size() || tensor_[candidate] == kNone) break;
        }
        if (found == kRoot) return kRoot;
        node = found;
        if (end == wanted.size()) return node;
        begin = end + 1;
    }
    return kRoot;
}

std::vector<TensorId> ModuleTree::tensorsBelow(Node n) const {
    if (empty()) return {};
    return {order_.begin() + orderBegin_[n], order_.begin() + orderEnd_[n]};
}

}  // namespace shardscope
