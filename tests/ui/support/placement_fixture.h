// What tests of the placement map share: matrices, a mixture of experts, and a page with its map built.
#pragma once

#include <QToolButton>

#include "support/gui_test.h"
#include "survey/placement_matrix.h"
#include "ui/pages/placement_page.h"
#include "ui/widgets/placement_map.h"

namespace shardscope::ui {

inline std::shared_ptr<const PlacementMatrix> matrixOf(Session& session, const MatrixOptions& options = {}) {
    return PlacementMatrix::build(session.checkpoint(), session.filtered().tree(), session.facts(), options);
}

inline TensorId tensorNamed(const Session& session, const char* name) {
    return session.catalog().find(name);
}

inline QToolButton* button(QWidget& page, const char* name) {
    for (QToolButton* candidate : page.findChildren<QToolButton*>()) {
        if (candidate->accessibleName() == QLatin1String(name)) return candidate;
    }
    return nullptr;
}

// Four layers with experts, which are spread over ep; dp holds copies of everything. Norms lie on the first
// place of ep alone.
inline std::shared_ptr<const Catalog> mixtureOfExperts(int experts = 8) {
    constexpr int64_t kSide = 1024;
    CatalogBuilder builder("dcp", "", "synthetic");
    std::vector<FileId> files;
    for (uint32_t r = 0; r < 8; ++r) {
        FileInfo info;
        info.path = "__" + std::to_string(r) + "_0.distcp";
        info.rank = r;
        info.size = uint64_t{1} << 40;
        files.push_back(builder.addFile(info));
    }
    const auto add = [&](const std::string& name, const std::vector<uint32_t>& ranks, bool cut) {
        TensorInfo info;
        info.name = name;
        info.dtype = DType::bfloat16;
        info.shape = {kSide, kSide};
        QVERIFY(builder.addTensor(info).ok());
        for (const uint32_t rank : ranks) {
            const int64_t rows = cut ? kSide / 4 : kSide;
            const Dims offsets{cut ? rank % 4 * rows : 0, 0}, lengths{rows, kSide};
            QVERIFY(builder.addChunk({rank, files[rank], 0, 1024, offsets, lengths, std::nullopt}).ok());
        }
    };
    for (int layer = 0; layer < 4; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + '.';
        add(prefix + "attn.qkv.weight", {0, 1, 2, 3, 4, 5, 6, 7}, true);
        for (int e = 0; e < experts; ++e) {
            const auto place = static_cast<uint32_t>(e * 4 / experts);
            for (const char* part : {"w1", "w2", "w3"})
                add(prefix + "mlp.experts." + std::to_string(e) + '.' + part + ".weight", {place, place + 4},
                    false);
        }
        add(prefix + "norm.weight", {0, 4}, false);
    }
    builder.setMesh(Mesh{{{"dp", 2}, {"ep", 4}}, Mesh::Source::declared, {}});
    builder.setRankCount(8);
    return std::make_shared<const Catalog>(std::move(builder).finish());
}

// A page on the screen with its map built.
inline std::unique_ptr<PlacementPage> showPage(Session& session, QSize size = {1180, 720}) {
    auto page = std::make_unique<PlacementPage>(session);
    page->resize(size);
    page->show();
    [&] {
        QVERIFY(QTest::qWaitForWindowExposed(page.get()));
        QTRY_VERIFY_WITH_TIMEOUT(page->map().matrix() && page->map().matrix()->facts() == session.facts(),
                                 120'000);
    }();
    return page;
}

}  // namespace shardscope::ui
