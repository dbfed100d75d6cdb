// A job as it was recorded in the middle of writing, on another machine, and what is to be said of it by
// whoever shows jobs.
#pragma once

#include <QDir>
#include <QFile>
#include <string>

namespace shardscope::test {

struct RecordedJob {
    static constexpr const char* id = "20261121-101500-00c0ffee";
    // 28 of 40 GiB are written at 1 GiB/s; then all of it is verified.
    static constexpr double share = 0.35, rate = 1073741824, secondsLeft = 52;
    static constexpr const char* text = "35 %, converting, 1.00 GiB/s, 52.0 s left";

    // Makes its directory in `jobs`.
    static bool write(const QString& jobs) {
        const QString directory = jobs + "/" + id;
        return QDir().mkpath(directory) && put(directory + "/job.json", R"({
"schema": "shardscope.job/1", "title": "step-1000 to model", "source": "/data/step-1000",
"destination": "/data/model", "program": "/usr/bin/shardscope",
"arguments": ["convert", "/data/step-1000", "/data/model", "--to", "safetensors"], "directory": "/data",
"host": "a-machine-that-is-not-this-one", "boot": "none", "created": "2026-11-21T10:15:00.000Z",
"started": "2026-11-21T10:15:00.000Z", "attempts": 1})") &&
               put(directory + "/progress.ndjson",
                   R"({"event":"attempt","number":1}
{"event":"progress","phase":"open","bytes_done":0,"bytes_total":0,"rate":0.0,"eta_s":0.0,"tensor":""}
{"event":"progress","phase":"write","pass":1,"bytes_done":2147483648,"bytes_total":42949672960,"rate":1073741824.0,"eta_s":38.0,"tensor":"a"}
{"event":"progress","phase":"write","pass":1,"bytes_done":30064771072,"bytes_total":42949672960,"rate":1073741824.0,"eta_s":12.0,"tensor":"b"}
)");
    }

  private:
    static bool put(const QString& path, const char* text) {
        QFile file(path);
        return file.open(QIODevice::WriteOnly) && file.write(text) > 0;
    }
};

}  // namespace shardscope::test
