// Tensors that are put together from parts of others: what arrives is compared with the same operations done
// one element at a time.
#include <QTest>
#include <array>
#include <map>

#include "execute/fake_checkpoint.h"
#include "execute/view_reader.h"
#include "plan/view.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

// Every element named by the source tensor and its position there.
struct Dense {
    Dims shape;
    std::vector<std::pair<TensorId, int64_t>> elements;
};

template <class Visit>
void forEachIndex(const Dims& shape, Visit&& visit) {
    Dims index(shape.size(), 0);
    const int64_t total = elementCount(shape);
    for (int64_t i = 0; i < total; ++i) {
        visit(i, index);
        for (size_t d = index.size(); d-- > 0;) {
            if (++index[d] < shape[d]) break;
            index[d] = 0;
        }
    }
}

int64_t positionIn(const Dims& shape, const Dims& index) {
    int64_t position = 0;
    for (size_t d = 0; d < shape.size(); ++d)
        position = position * shape[d] + index[d];
    return position;
}

Dense dense(TensorId id, const Dims& shape) {
    Dense out{shape, {}};
    for (int64_t i = 0; i < elementCount(shape); ++i)
        out.elements.emplace_back(id, i);
    return out;
}

Dense permuted(const Dense& in, const std::vector<int>& order) {
    Dense out;
    for (const int d : order)
        out.shape.push_back(in.shape[static_cast<size_t>(d)]);
    forEachIndex(out.shape, [&](int64_t, const Dims& index) {
        Dims from(index.size());
        for (size_t i = 0; i < order.size(); ++i)
            from[static_cast<size_t>(order[i])] = index[i];
        out.elements.push_back(in.elements[static_cast<size_t>(positionIn(in.shape, from))]);
    });
    return out;
}

Dense narrowed(const Dense& in, size_t dim, int64_t start, int64_t length) {
    Dense out{in.shape, {}};
    out.shape[dim] = length;
    forEachIndex(out.shape, [&](int64_t, Dims index) {
        index[dim] += start;
        out.elements.push_back(in.elements[static_cast<size_t>(positionIn(in.shape, index))]);
    });
    return out;
}

Dense concatenated(const std::vector<Dense>& parts, size_t dim) {
    Dense out{parts[0].shape, {}};
    out.shape[dim] = 0;
    for (const Dense& part : parts)
        out.shape[dim] += part.shape[dim];
    forEachIndex(out.shape, [&](int64_t, Dims index) {
        for (const Dense& part : parts) {
            if (index[dim] < part.shape[dim]) {
                out.elements.push_back(part.elements[static_cast<size_t>(positionIn(part.shape, index))]);
                return;
            }
            index[dim] -= part.shape[dim];
        }
    });
    return out;
}

Dims randomShape(Random& random, int64_t elements) {
    Dims shape;
    while (elements > 1 && shape.size() < 5) {
        std::vector<int64_t> divisors;
        for (int64_t n = 2; n <= std::min<int64_t>(elements, 4096); ++n) {
            if (elements % n == 0) divisors.push_back(n);
        }
        if (divisors.empty() || random() % 5 == 0) break;
        const int64_t n = divisors[random() % divisors.size()];
        shape.push_back(n);
        elements /= n;
    }
    shape.push_back(elements);
    if (random() % 4 == 0) shape.insert(shape.begin() + static_cast<ptrdiff_t>(random() % shape.size()), 1);
    std::shuffle(shape.begin(), shape.end(), random);
    return shape;
}

struct Both {
    TensorView view;
    Dense model;
};

// What pads: a number that every dtype of these tests holds. Its elements have no source.
constexpr double kFill = 2.5;

Dense constant(const Dims& shape) {
    Dense out{shape, {}};
    out.elements.assign(static_cast<size_t>(elementCount(shape)), {kNone, 0});
    return out;
}

Both randomOperation(Random& random, const Both& in) {
    const Dims& shape = in.model.shape;
    const size_t rank = shape.size();
    switch (random() % 6) {
        case 4: {
            if (rank == 0 || elementCount(shape) > 2000) return in;
            const size_t d = random() % rank;
            Dims more = shape;
            more[d] = pick(random, 1, 3);
            const bool before = random() % 2 == 0;
            const TensorView fill = TensorView::constant(more, kFill);
            const std::vector views{before ? fill : in.view, before ? in.view : fill};
            const std::vector models{before ? constant(more) : in.model, before ? in.model : constant(more)};
            return {TensorView::concatenated(views, static_cast<int>(d)).value(), concatenated(models, d)};
        }
        case 5: {
            if (rank == 0 || elementCount(shape) > 2000) return in;
            const size_t d = random() % rank;
            const int64_t row = pick(random, 0, shape[d] - 1), count = pick(random, 1, 4);
            const TensorView one = in.view.narrowed(static_cast<int>(d), row, 1).value();
            const std::vector<Dense> models(static_cast<size_t>(count), narrowed(in.model, d, row, 1));
            return {one.repeated(static_cast<int>(d), count).value(), concatenated(models, d)};
        }
        case 0: {
            const Dims to = randomShape(random, elementCount(shape));
            return {in.view.reshaped(to).value(), {to, in.model.elements}};
        }
        case 1: {
            std::vector<int> order(rank);
            std::iota(order.begin(), order.end(), 0);
            std::shuffle(order.begin(), order.end(), random);
            return {in.view.permuted(order).value(), permuted(in.model, order)};
        }
        default: {
            if (rank == 0) return in;
            const size_t d = random() % rank;
            const int64_t parts = std::min<int64_t>(shape[d], pick(random, 1, 4));
            std::vector<TensorView> views;
            std::vector<Dense> models;
            for (int64_t i = 0; i < parts; ++i) {
                const int64_t a = shape[d] * i / parts, b = shape[d] * (i + 1) / parts;
                views.push_back(in.view.narrowed(static_cast<int>(d), a, b - a).value());
                models.push_back(narrowed(in.model, d, a, b - a));
            }
            if (random() % 3 == 0) return {views[0], models[0]};
            // Put together again in another order.
            const size_t turn = random() % views.size();
            std::rotate(views.begin(), views.begin() + static_cast<ptrdiff_t>(turn), views.end());
            std::rotate(models.begin(), models.begin() + static_cast<ptrdiff_t>(turn), models.end());
            return {TensorView::concatenated(views, static_cast<int>(d)).value(), concatenated(models, d)};
        }
    }
}

bool same(const Both& both) {
    if (both.view.shape() != both.model.shape) return false;
    if (elementCount(both.view.dims()) != elementCount(both.model.shape)) return false;
    std::vector<std::pair<TensorId, int64_t>> found(both.model.elements.size(), {kNone, -1});
    size_t filled = 0;
    for (const ViewPiece& piece : both.view.pieces()) {
        forEachIndex(piece.box.lengths, [&](int64_t, const Dims& index) {
            int64_t from = piece.start;
            Dims at = index;
            for (size_t d = 0; d < at.size(); ++d) {
                from += index[d] * piece.strides[d];
                at[d] += piece.box.offsets[d];
            }
            if (piece.source == kNone && piece.fill != kFill) return;
            found[static_cast<size_t>(positionIn(both.view.dims(), at))] = {piece.source, from};
            ++filled;
        });
    }
    return filled == found.size() && found == both.model.elements;
}

struct Room {
    ThreadPool pool{3};
    MemoryBudget memory;
    Progress progress;
    explicit Room(uint64_t bytes) : memory(bytes) {}
    Resources resources() {
        Resources r;
        r.pool = &pool;
        r.memory = &memory;
        r.progress = &progress;
        return r;
    }
};

Bytes bytesOf(const Dense& model, const std::vector<FakeTensor>& sources, size_t size) {
    Bytes out(model.elements.size() * size);
    for (size_t i = 0; i < model.elements.size(); ++i) {
        const auto& [id, position] = model.elements[i];
        if (id == kNone) {
            castElements(DType::float64, reinterpret_cast<const std::byte*>(&kFill),
                         size == 2 ? DType::bfloat16 : DType::float32, out.data() + i * size, 1);
            continue;
        }
        std::memcpy(out.data() + i * size, sources[id].data.data() + static_cast<size_t>(position) * size,
                    size);
    }
    return out;
}

// Converts one tensor made by `both` and compares every byte of the destination.
void convertAndCompare(Random& random, const FakeSource& source,
                       const std::shared_ptr<MemoryFileSystem>& system, const std::vector<Both>& target,
                       uint64_t memory, Verify verify, uint64_t* bytesRead) {
    std::vector<FakeTensor> tensors;
    for (const Both& both : target) {
        const DType dtype = both.model.elements.empty() ? DType::float32 : source.tensors[0].dtype;
        tensors.push_back({"made" + std::to_string(tensors.size()), dtype, both.model.shape,
                           bytesOf(both.model, source.tensors, dtypeBytes(dtype)), kNone});
    }
    FakeJob job(random, source, system, tensors);
    for (size_t i = 0; i < target.size(); ++i)
        job.spec.sources[i] = {kNone, std::make_shared<const TensorView>(target[i].view)};
    job.job.options.verify = verify;
    job.job.options.overwrite = true;
    Room room(memory);
    const auto report = runConversion(job.job, room.resources());
    QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
    QVERIFY(system->tree("/out/dst") == job.expected());
    QVERIFY(room.memory.peak() <= room.memory.limit());
    if (bytesRead) *bytesRead = report->bytesRead;
    // The digest is that of the tensor as it is wanted.
    for (size_t i = 0; i < tensors.size(); ++i) {
        const int64_t per = digestCellElements(tensors[i].dtype);
        const auto size = static_cast<int64_t>(dtypeBytes(tensors[i].dtype));
        std::vector<Digest128> cells;
        for (int64_t at = 0; at < elementCount(tensors[i].shape); at += per) {
            const int64_t n = std::min(per, elementCount(tensors[i].shape) - at);
            cells.push_back(
                cellDigest(std::span(tensors[i].data)
                               .subspan(static_cast<size_t>(at * size), static_cast<size_t>(n * size))));
        }
        QCOMPARE(report->digests[i].second, tensorDigest(tensors[i].dtype, tensors[i].shape, cells));
    }
}

std::shared_ptr<MemoryFileSystem> newSystem() {
    auto system = std::make_shared<MemoryFileSystem>();
    system->put("/out/other", {});
    return system;
}

}  // namespace

class TestView : public QObject {
    Q_OBJECT

  private slots:
    // Chains of random operations, against the same on lists of elements.
    void operations() {
        for (unsigned seed = 0; seed < 600; ++seed) {
            Random random(seed);
            const Dims shape = randomShape(random, pick(random, 1, 400));
            Both both{TensorView::whole(0, shape), dense(0, shape)};
            for (int i = 0; i < 7; ++i) {
                both = randomOperation(random, both);
                QVERIFY2(same(both), std::to_string(seed).c_str());
            }
        }
    }

    // The same, over sources and destinations that are cut at random, read and written.
    void converted() {
        for (unsigned seed = 0; seed < 40; ++seed) {
            Random random(seed);
            auto system = newSystem();
            FakeSource source;
            const DType dtype = seed % 2 ? DType::bfloat16 : DType::float32;
            const int64_t most = seed % 10 == 0 ? 600'000 : 3000;
            for (int i = 0; i < 3; ++i)
                source.add(random, randomTensor(random, "t" + std::to_string(i), most, dtype));
            source.write(random, *system);
            std::vector<Both> target;
            for (TensorId t = 0; t < 3; ++t) {
                const Dims& shape = source.tensors[t].shape;
                Both both{TensorView::whole(t, shape), dense(t, shape)};
                for (int i = 0; i < 4; ++i)
                    both = randomOperation(random, both);
                target.push_back(both);
            }
            // One of several sources, flattened.
            std::vector<TensorView> flat;
            std::vector<Dense> flatModels;
            for (const Both& both : target) {
                const Dims line{elementCount(both.model.shape)};
                flat.push_back(both.view.reshaped(line).value());
                flatModels.push_back({line, both.model.elements});
            }
            target.push_back({TensorView::concatenated(flat, 0).value(), concatenated(flatModels, 0)});
            convertAndCompare(random, source, system, target, uint64_t{8 + 24 * (seed % 2)} << 20,
                              std::array{Verify::digest, Verify::full, Verify::none}[seed % 3], nullptr);
            if (QTest::currentTestFailed()) qFatal("seed %u", seed);
        }
    }

    // A transpose that does not fit in memory goes through a scratch file; one that does is read once.
    void transposesInBoundedMemory() {
        for (const int64_t rows : {500, 1500}) {
            Random random(7);
            auto system = newSystem();
            FakeSource source;
            FakeTensor tensor{"t", DType::float32, {rows, 1200}, {}, kNone};
            tensor.data = randomBytes(random, static_cast<size_t>(elementCount(tensor.shape)) * 4);
            source.add(random, tensor);
            source.write(random, *system);
            const std::vector<int> order{1, 0};
            const Both both{TensorView::whole(0, tensor.shape).permuted(order).value(),
                            permuted(dense(0, tensor.shape), order)};
            const uint64_t memory = uint64_t{20} << 20, bytes = tensor.data.size();
            const ViewReading reading = viewReading(both.view, 4, memory);
            QCOMPARE(reading.ways[0],
                     bytes > memory / 8 ? ViewReading::Way::scratch : ViewReading::Way::held);
            uint64_t read = 0;
            convertAndCompare(random, source, system, {both}, memory, Verify::digest, &read);
            QCOMPARE(read, bytes);
            QCOMPARE(reading.sourceBytes, bytes);
        }
    }

    // Rows of a fused projection are read where they lie, each byte once.
    void rowsAreReadOnce() {
        Random random(3);
        auto system = newSystem();
        FakeSource source;
        FakeTensor tensor{"t", DType::bfloat16, {4 * 6 * 32, 600}, {}, kNone};
        tensor.data = randomBytes(random, static_cast<size_t>(elementCount(tensor.shape)) * 2);
        source.add(random, tensor);
        source.write(random, *system);
        const Both whole{TensorView::whole(0, tensor.shape), dense(0, tensor.shape)};
        std::vector<Both> target;
        const Dims cut{4, 6, 32, 600};
        for (const auto& [at, count] : {std::pair<int64_t, int64_t>{0, 4}, {4, 1}, {5, 1}}) {
            const Dims shape{4 * count * 32, 600};
            target.push_back({whole.view.reshaped(cut)->narrowed(1, at, count)->reshaped(shape).value(),
                              {shape, narrowed({cut, whole.model.elements}, 1, at, count).elements}});
            QCOMPARE(viewReading(target.back().view, 2, 1 << 20).ways[0], ViewReading::Way::direct);
        }
        uint64_t read = 0;
        convertAndCompare(random, source, system, target, uint64_t{32} << 20, Verify::digest, &read);
        QCOMPARE(read, static_cast<uint64_t>(tensor.data.size()));
    }

    void wrongOperations() {
        const TensorView view = TensorView::whole(0, Dims{6, 4});
        QVERIFY(!view.reshaped(Dims{5, 5}).ok());
        QVERIFY(!view.reshaped(Dims{-6, -4}).ok());
        QVERIFY(!view.reshaped(Dims{int64_t{1} << 40, int64_t{1} << 40}).ok());
        QVERIFY(!view.permuted(std::vector<int>{0}).ok());
        QVERIFY(!view.permuted(std::vector<int>{0, 0}).ok());
        QVERIFY(!view.permuted(std::vector<int>{0, 2}).ok());
        QVERIFY(!view.narrowed(2, 0, 1).ok());
        QVERIFY(!view.narrowed(0, 4, 3).ok());
        QVERIFY(!view.narrowed(0, -1, 3).ok());
        const TensorView other = TensorView::whole(1, Dims{6, 5});
        QVERIFY(!TensorView::concatenated(std::vector{view, other}, 0).ok());
        QVERIFY(TensorView::concatenated(std::vector{view, other}, 1).ok());
        QVERIFY(!TensorView::concatenated(std::vector<TensorView>{}, 0).ok());
        // Thousands of rows that lie apart, flattened into pieces of their own, have a limit.
        const std::vector<int> turned{1, 0};
        const TensorView large = TensorView::whole(0, Dims{int64_t{1} << 22, 3})
                                     .permuted(turned)
                                     ->reshaped(Dims{3 * (int64_t{1} << 22)})
                                     .value();
        QCOMPARE(large.narrowed(0, 1, 5)->pieces().size(), size_t{1});
        const TensorView wide = TensorView::whole(0, Dims{3, int64_t{1} << 22})
                                    .permuted(turned)
                                    ->reshaped(Dims{3 * (int64_t{1} << 22)})
                                    .value();
        QCOMPARE(wide.narrowed(0, 1, 5).error().code, ErrorCode::limit);
    }
};

QTEST_GUILESS_MAIN(TestView)
#include "test_view.moc"
