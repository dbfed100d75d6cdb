#include "ui/bridge/selection.h"

#include <algorithm>

namespace shardscope::ui {

namespace {
constexpr size_t kLongestHistory = 200;
}

void Selection::show(Selected next) {
    const Selected before = std::exchange(current_, std::move(next));
    emit changed(current_, before);
    emit historyChanged();
}

void Selection::set(Selected next) {
    if (next == current_) return;
    history_.resize(at_ + 1);
    // Typing a filter is one step, not one for each letter.
    Selected unfiltered = next;
    unfiltered.filter = current_.filter;
    const bool typing = unfiltered == current_ && at_ > 0 && history_[at_ - 1].filter != current_.filter;
    if (typing) {
        history_[at_] = next;
    } else {
        history_.push_back(next);
        if (history_.size() > kLongestHistory) history_.erase(history_.begin());
        at_ = history_.size() - 1;
    }
    show(std::move(next));
}

// A tensor, a module or an object: one of them at most.
void Selection::selectWhat(TensorId tensor, const QString& module, ObjectId object) {
    Selected next = current_;
    if (next.tensor != tensor || tensor == kNone) next.chunk = kNone;
    next.tensor = tensor;
    next.module = module;
    next.object = object;
    set(std::move(next));
}

void Selection::selectTensor(TensorId tensor) {
    selectWhat(tensor, {}, kNone);
}

void Selection::selectObject(ObjectId object) {
    selectWhat(kNone, {}, object);
}

void Selection::selectModule(const QString& fullName) {
    selectWhat(kNone, fullName, kNone);
}

void Selection::selectChunk(TensorId tensor, ChunkId chunk, uint32_t rank, FileId file) {
    Selected next = current_;
    next.tensor = tensor;
    next.module.clear();
    next.object = kNone;
    next.chunk = chunk;
    next.file = file;
    next.ranks.clear();
    if (rank != kNone) next.ranks.push_back(rank);
    set(std::move(next));
}

void Selection::selectRanks(std::vector<uint32_t> ranks) {
    Selected next = current_;
    std::sort(ranks.begin(), ranks.end());
    next.ranks = std::move(ranks);
    set(std::move(next));
}

void Selection::selectCell(TensorId tensor, uint32_t rank, ChunkId chunk) {
    Selected next = current_;
    next.tensor = tensor;
    next.module.clear();
    next.object = kNone;
    next.chunk = chunk;
    next.ranks = {rank};
    set(std::move(next));
}

void Selection::selectFile(FileId file) {
    Selected next = current_;
    if (next.file != file) next.chunk = kNone;
    next.file = file;
    set(std::move(next));
}

void Selection::setFilter(const QString& text) {
    Selected next = current_;
    next.filter = text;
    set(std::move(next));
}

void Selection::setPage(Page page) {
    Selected next = current_;
    next.page = page;
    set(std::move(next));
}

void Selection::keepMapView(const QRectF& view) {
    current_.mapView = history_[at_].mapView = view;
}

void Selection::clear() {
    history_ = {Selected{}};
    at_ = 0;
    show({});
}

void Selection::back() {
    if (!canGoBack()) return;
    show(history_[--at_]);
}

void Selection::forward() {
    if (!canGoForward()) return;
    show(history_[++at_]);
}

}  // namespace shardscope::ui
