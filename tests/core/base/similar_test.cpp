#include "base/similar.h"

#include <QTest>

using namespace shardscope;

class SimilarTest : public QObject {
    Q_OBJECT

    static std::string meant(std::string_view word, std::initializer_list<std::string_view> candidates) {
        Similar similar(word);
        for (const std::string_view candidate : candidates)
            similar.see(candidate);
        return similar.best();
    }

  private slots:
    void findsTypingErrors() {
        QCOMPARE(meant("mehs", {"map", "mesh", "shard"}), "mesh");
        QCOMPARE(meant("lm_head.wieght", {"lm_head.bias", "lm_head.weight"}), "lm_head.weight");
        QCOMPARE(meant("weight_only", {"weights", "weights_only"}), "weights_only");
        QCOMPARE(meant("model.layers.1.w", {"model.layers.10.w", "model.layers.2.w"}), "model.layers.10.w");
    }
    void theWordItselfIsTheBest() {
        QCOMPARE(meant("values", {"values", "valves"}), "values");
        QCOMPARE(didYouMean("valeus", {"files", "values"}), "did you mean 'values'?");
        QCOMPARE(didYouMean("all", {"files", "values"}), "");
    }
    void leavesOtherWordsAlone() {
        QCOMPARE(meant("embed", {"head", "layers"}), "");
        QCOMPARE(meant("io", {"on", "in"}), "");
        QCOMPARE(meant("", {"", "a"}), "");
        QCOMPARE(meant("weights", {}), "");
        QCOMPARE(meant("abcdef", {"fedcba"}), "");
    }
};

QTEST_GUILESS_MAIN(SimilarTest)
#include "similar_test.moc"
