// What the description of a zarr array says, and what is refused.
#include "encoding/zarr_array.h"

#include <QtTest>

using namespace shardscope;

namespace {

const std::string kDescription =
    R"({"chunks": [1, 8, 16], "compressor": null, "dtype": "bfloat16", "fill_value": null, "filters": null, )"
    R"("order": "C", "shape": [2, 30, 16], "zarr_format": 2})";

std::string with(std::string_view from, std::string_view to) {
    std::string text = kDescription;
    const size_t at = text.find(from);
    if (at == text.npos) qFatal("nothing to replace");
    return text.replace(at, from.size(), to);
}

}  // namespace

class ZarrArrayTest : public QObject {
    Q_OBJECT

  private slots:
    void describesAnArray() {
        const auto array = parseZarray(kDescription);
        QVERIFY(array.ok());
        QVERIFY(array->dtype == DType::bfloat16 && !array->bigEndian && !array->fill);
        QVERIFY((array->shape == Dims{2, 30, 16} && array->chunk == Dims{1, 8, 16}));
        QVERIFY((array->grid() == Dims{2, 4, 1}));
        QCOMPARE(array->chunkBytes(), uint64_t{256});
    }

    void chunksHaveOneName() {
        const auto array = parseZarray(kDescription);
        QVERIFY(array.ok());
        const Dims last{1, 3, 0};
        QCOMPARE(array->chunkName(last), std::string("1.3.0"));
        QVERIFY(array->chunkPlace("1.3.0") == last);
        for (const char* other :
             {"1.3", "1.3.0.0", "1.4.0", "01.3.0", "1.3.0 ", "-1.3.0", "1/3/0", ".zarray", ""})
            QVERIFY2(!array->chunkPlace(other), other);
        const auto scalar = parseZarray(
            R"({"chunks": [], "compressor": null, "dtype": ">i8", "fill_value": 0, "order": "C", "shape": [], "zarr_format": 2})");
        QVERIFY(scalar.ok() && scalar->bigEndian && scalar->fill);
        QVERIFY(scalar->chunkPlace("0") == Dims{} && scalar->chunkName({}) == "0");
    }

    void refusesWhatItCannotRead_data() {
        QTest::addColumn<QString>("text");
        QTest::addColumn<bool>("isDamage");
        const auto row = [](const char* name, const std::string& text, bool isDamage) {
            QTest::newRow(name) << QString::fromStdString(text) << isDamage;
        };
        row("compressor", with("\"compressor\": null", R"("compressor": {"id": "blosc"})"), false);
        row("filters", with("\"filters\": null", R"("filters": [{"id": "delta"}])"), false);
        row("column-major", with("\"C\"", "\"F\""), false);
        row("dtype", with("bfloat16", "|V6"), false);
        row("version", with("\"zarr_format\": 2", "\"zarr_format\": 3"), false);
        row("directories", with("\"order\"", R"("dimension_separator": ":", "order")"), true);
        row("rank", with("[1, 8, 16]", "[8, 16]"), true);
        row("empty chunks", with("[1, 8, 16]", "[1, 0, 16]"), true);
        row("negative", with("[2, 30, 16]", "[2, -30, 16]"), true);
        row("fraction", with("[2, 30, 16]", "[2, 3.5, 16]"), true);
        row("overflow", with("[2, 30, 16]", "[281474976710656, 281474976710656, 281474976710656]"), true);
        row("beyond all", with("[2, 30, 16]", "[2, 18446744073709551615, 16]"), true);
    }
    void refusesWhatItCannotRead() {
        QFETCH(QString, text);
        QFETCH(bool, isDamage);
        const auto array = parseZarray(text.toStdString());
        QVERIFY(!array.ok());
        QCOMPARE(array.error().code == ErrorCode::damaged, isDamage);
    }

    void everyTruncationIsAnError() {
        for (size_t length = 0; length < kDescription.size(); ++length)
            QVERIFY(!parseZarray(std::string_view(kDescription).substr(0, length)).ok());
    }
};

QTEST_GUILESS_MAIN(ZarrArrayTest)
#include "zarr_array_test.moc"
