// Files of ranks that stand under other names than their writers gave them.
#include "model/rank_files.h"

#include <QTest>
#include <algorithm>

using namespace shardscope;

class RankFilesTest : public QObject {
    Q_OBJECT

    static std::vector<std::string> pathsOf(const std::vector<RankOrigin>& files) {
        std::vector<std::string> paths;
        for (const MisnamedFile& file : misnamedFiles(files))
            paths.push_back(file.path);
        std::ranges::sort(paths);
        return paths;
    }

  private slots:
    // Tensor-, pipeline- and data-parallel ranks are numbered in many orders; each grows along each.
    void processesGrowWithTheNumbers() {
        std::vector<RankOrigin> files;
        for (uint32_t p = 0; p < 3; ++p)
            for (uint32_t t = 0; t < 2; ++t)
                files.push_back(
                    {"it/mp_rank_0" + std::to_string(t) + "_00" + std::to_string(p), 0, p * 8 + t * 4, {}});
        QVERIFY(pathsOf(files).empty());
        std::swap(files[2].stated, files[3].stated);  // along one number
        QCOMPARE(pathsOf(files), std::vector<std::string>{files[3].path});
        std::swap(files[2].stated, files[3].stated);
        std::swap(files[0].stated, files[5].stated);  // across both
        QVERIFY(!pathsOf(files).empty());
    }
    void oneProcessForAllSaysNothing() {
        const std::vector<RankOrigin> files{{"mp_rank_00", 0, 1, {}}, {"mp_rank_01", 1, 0, {}}};
        QCOMPARE(pathsOf(files).size(), size_t{1});
        QVERIFY(pathsOf({files[0], {"mp_rank_01", 1, 1, {}}}).empty());
        QVERIFY(pathsOf({files[0], {"mp_rank_01", 1, {}, {}}, {"mp_rank_02", 2, 0, {}}}).empty());
    }
    // Ranks may be on any devices; the two files of one rank are on the same.
    void devicesOfTwoKinds() {
        std::vector<RankOrigin> files{
            {"model_0", 0, {}, 3}, {"model_1", 1, {}, 2}, {"optim_0", 0, {}, 3}, {"optim_1", 1, {}, 2}};
        QVERIFY(pathsOf(files).empty());
        std::swap(files[2].device, files[3].device);
        QCOMPARE(pathsOf(files), std::vector<std::string>{"optim_1"});
        files[3].device = 5;  // of another save, on other devices
        QVERIFY(pathsOf(files).empty());
    }
};

QTEST_APPLESS_MAIN(RankFilesTest)
#include "rank_files_test.moc"
