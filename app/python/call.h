// A call from Python: conversion of texts and errors, and work that runs without the interpreter's lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "asked.h"

namespace nb = nanobind;

namespace shardscope::python {

// ------------------------------------------------------------------ text and errors

// Names and paths may hold bytes that are no UTF-8; as Python does with file names, each such byte is a lone
// surrogate there.
inline nb::object toText(std::string_view text) {
    PyObject* object =
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
    if (!object) throw nb::python_error();
    return nb::steal(object);
}

inline std::string fromText(nb::handle text) {
    PyObject* bytes = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape");
    if (!bytes) throw nb::python_error();
    const nb::object keep = nb::steal(bytes);
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(bytes, &data, &size) != 0) throw nb::python_error();
    return {data, static_cast<size_t>(size)};
}

[[noreturn]] inline void raise(const Error& error) {
    const auto textOr = [](const std::string& text) -> nb::object {
        return text.empty() ? nb::object(nb::none()) : toText(text);
    };
    const nb::object make = nb::module_::import_("shardscope._errors").attr("made");
    const nb::object offset =
        error.location.offset ? nb::object(nb::int_(*error.location.offset)) : nb::object(nb::none());
    Error worded = error;
    worded.message = inKeywords(worded.message);
    const nb::object value = make(toText(errorCodeName(error.code)), toText(worded.message),
                                  textOr(error.location.file), offset, textOr(error.location.tensor),
                                  textOr(error.location.rule), textOr(error.hint), toText(describe(worded)));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())), value.ptr());
    throw nb::python_error();
}

template <class T>
T valueOf(Result<T>&& result) {
    if (!result.ok()) raise(result.error());
    return std::move(result).value();
}

// ------------------------------------------------------------------ work without the interpreter's lock

struct Sample {
    std::string phase;
    uint64_t done = 0, total = 0;
    std::string tensor;
};

// What a call that works is told and tells.
class Call {
  public:
    Call() : stop_(own_) {}
    // `asked` is stopped with it, and tells it of the work.
    explicit Call(Asked& asked) : stop_(asked.access.stop) {
        asked.access.watch = [this](const Progress& progress, const auto&) { return watch(progress); };
    }
    const StopSource& stop() const { return stop_; }
    // Tells of this work for as long as what it returns lives.
    std::shared_ptr<void> watch(const Progress& progress) {
        follow(&progress);
        return {this, [](Call* call) { call->follow(nullptr); }};
    }

    // Runs work(*this) on a thread of its own and returns what it does. Meanwhile this thread lets others run
    // and looks for signals. It calls `asked` (None, a word that _progress.py knows, or called with phase,
    // done, total and tensor). What either raises stops the work and is raised here.
    template <class Work>
    auto run(Work&& work, nb::handle asked = nb::none()) -> decltype(work(*this)) {
        const nb::object progress = shownBy(asked);
        using Answer = decltype(work(*this));
        std::optional<Answer> answer;
        bool raised = false;
        {
            nb::gil_scoped_release released;
            std::thread thread([&] {
                std::optional<Answer> mine;
                try {
                    mine.emplace(work(*this));
                } catch (const std::bad_alloc&) {
                    mine.emplace(makeError(ErrorCode::limit, "out of memory"));
                } catch (const std::exception& e) {
                    mine.emplace(
                        makeError(ErrorCode::internal, std::string("unexpected failure: ") + e.what()));
                }
                const std::lock_guard lock(mutex_);
                answer = std::move(mine);
                done_.notify_all();
            });
            std::unique_lock lock(mutex_);
            while (!answer) {
                done_.wait_for(lock, std::chrono::milliseconds(100));
                if (raised) continue;
                if (progress_) sample_ = sampleOf(*progress_);
                const std::optional<Sample> sample = std::exchange(sample_, std::nullopt);
                lock.unlock();
                {
                    nb::gil_scoped_acquire acquired;
                    raised = PyErr_CheckSignals() != 0 || (sample && !show(progress, *sample));
                    // The error stays with this thread while it waits for the work to end.
                    if (raised) {
                        error_ = nb::steal(PyErr_GetRaisedExceptionHere());
                        stop_.requestStop();
                    }
                }
                lock.lock();
            }
            lock.unlock();
            thread.join();
        }
        if (!raised && sample_ && !show(progress, *sample_)) {
            raised = true;
            error_ = nb::steal(PyErr_GetRaisedExceptionHere());
        }
        if (raised) {
            PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error_.ptr())), error_.ptr());
            throw nb::python_error();
        }
        return std::move(*answer);
    }

  private:
    static nb::object shownBy(nb::handle asked) {
        if (!nb::isinstance<nb::str>(asked)) return nb::borrow(asked);
        return nb::module_::import_("shardscope._progress").attr("shown")(asked);
    }

    // The exception that is set, which is not set any more; for Python 3.11, which has no
    // PyErr_GetRaisedException.
    static PyObject* PyErr_GetRaisedExceptionHere() {
        PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
        PyErr_Fetch(&type, &value, &trace);
        PyErr_NormalizeException(&type, &value, &trace);
        Py_XDECREF(type);
        Py_XDECREF(trace);
        return value;
    }

    static bool show(nb::handle progress, const Sample& sample) {
        if (progress.is_none()) return true;
        try {
            progress(sample.phase, sample.done, sample.total, toText(sample.tensor));
            return true;
        } catch (nb::python_error& error) {
            error.restore();
            return false;
        }
    }

    static Sample sampleOf(const Progress& progress) {
        return {std::string(Progress::phaseName(progress.phase())), progress.bytesDone(),
                progress.bytesTotal(), progress.tensor()};
    }
    void follow(const Progress* progress) {
        const std::lock_guard lock(mutex_);
        if (progress_) sample_ = sampleOf(*progress_);
        progress_ = progress;
    }

    StopSource own_;
    StopSource& stop_;
    std::mutex mutex_;
    std::condition_variable done_;
    const Progress* progress_ = nullptr;  // of work that goes on
    std::optional<Sample> sample_;        // at its end
    nb::object error_;
};

inline std::vector<std::string> wordsOf(nb::handle list) {
    std::vector<std::string> words;
    for (nb::handle word : list)
        words.push_back(fromText(word));
    return words;
}

inline std::shared_ptr<Asked> asked(std::string_view verb, nb::handle options,
                                    const std::string& program = {}) {
    return valueOf(askedBy(verb, wordsOf(options), program));
}

// What there is of runs of several steps (runs.cpp).
void addRuns(nb::module_& m);
// Conversion of a state in memory (state.cpp).
void addSave(nb::module_& m);

}  // namespace shardscope::python
