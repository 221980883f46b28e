/* SPDX-License-Identifier: Apache-2.0
 * Volumes beside their masks: the layouts that are found, and what is not clear in them. */
#include "fixture.h"

static bool has_volumes(const psti_dataset *data, const char *format)
{
    const pst_field_info *image = field_info(data, "image"), *mask = field_info(data, "mask");
    return image && mask && image->kind == PST_VOLUME && mask->kind == PST_MASK &&
           image->rank == 4 && mask->rank == 4 && image->shape[3] == -1 && mask->shape[3] == -1 &&
           strcmp(image->format, format) == 0 && strcmp(mask->format, format) == 0 &&
           field_number(data, "label") < 0;
}

static void a_folder_is_a_case(void)
{
    scratch_clear();
    put_text(at("d/case_1/imaging.nii.gz"), "one");
    put_text(at("d/case_1/segmentation.nii.gz"), "mask one");
    put_text(at("d/case_1/notes.txt"), "no sample");
    put_text(at("d/case_1-b/image.nii"), "two");
    put_text(at("d/case_1-b/label.nii"), "mask two");
    mkdir(at("d/empty"), 0755);
    put_text(at("d/kits.json"), "no sample");
    psti_dataset *data = open_plain(at("d"));
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_count(data) == 2 && has_volumes(data, "nifti"));
    /* As texts, not as folders, which end in a slash. */
    CHECK(key_is(data, 0, "case_1") && key_is(data, 1, "case_1-b"));
    CHECK(member_is(data, 0, "image", "one") && member_is(data, 0, "mask", "mask one"));
    CHECK(member_is(data, 1, "image", "two") && member_is(data, 1, "mask", "mask two"));
    CHECK(!field_info(data, "mask")->optional && psti_dataset_sample_bytes(data, 0) == 11);
    psti_dataset_unref(data);
    put_text(at("d/case_2/imaging.nii.gz"), "three");
    data = open_plain(at("d"));
    CHECK(psti_dataset_count(data) == 3 && field_info(data, "mask")->optional);
    psti_dataset_unref(data);
}

/* Two images, another file, something deeper, or no mask at all: these are classes. */
static void other_folders_are_classes(void)
{
    static const char *const more[] = {"image.nii", "other.nii.gz", "deep/imaging.nii.gz", "a.jpg"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        scratch_clear();
        put_text(at("d/a/imaging.nii.gz"), "one");
        put_text(at("d/a/segmentation.nii.gz"), "mask one");
        put_text(at("d/a/%s", more[i]), "more");
        psti_dataset *data = open_plain(at("d"));
        CHECKF(data && psti_dataset_count(data) == 3 && field_number(data, "label") >= 0, "%s",
               more[i]);
        psti_dataset_unref(data);
    }
    scratch_clear();
    put_text(at("d/a/imaging.nii.gz"), "one");
    psti_dataset *data = open_plain(at("d"));
    CHECK(field_number(data, "label") >= 0 && field_number(data, "volume") == 0);
    psti_dataset_unref(data);
}

static void arrays_lie_side_by_side(void)
{
    scratch_clear();
    put_text(at("d/k_x.npy"), "k image");
    put_text(at("d/k_x_x.npy"), "k_x image");
    put_text(at("d/k_x_y.npy"), "k_x mask");
    put_text(at("d/k_y.npy"), "k mask");
    psti_dataset *data = open_plain(at("d"));
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_count(data) == 2 && has_volumes(data, "npy"));
    CHECK(key_is(data, 0, "k") && key_is(data, 1, "k_x"));
    CHECK(member_is(data, 0, "image", "k image") && member_is(data, 0, "mask", "k mask"));
    CHECK(member_is(data, 1, "image", "k_x image") && member_is(data, 1, "mask", "k_x mask"));
    psti_dataset_unref(data);
    put_text(at("d/m_y.npy"), "m mask");
    CHECK_REFUSED(at("d"), PST_EDATASET, "m_y.npy has no m_x.npy");
    put_text(at("d/m_y.NPY"), "m mask again"); /* two of one role are no case */
    CHECK_REFUSED(at("d"), PST_EDATASET, "has no m_x.npy");
    CHECK(unlink(at("d/m_y.NPY")) == 0);
    put_text(at("d/other.npy"), "an array");
    data = open_plain(at("d"));
    CHECK(psti_dataset_count(data) == 6 && field_number(data, "npy") == 0);
    psti_dataset_unref(data);
    put_text(at("e/a_x.npy"), "a");
    put_text(at("e/b_x.npy"), "b");
    data = open_plain(at("e"));
    CHECK(psti_dataset_count(data) == 2 && field_number(data, "npy") == 0);
    psti_dataset_unref(data);
}

static void an_archive_holds_both(void)
{
    scratch_clear();
    put_text(at("d/a.npz"), "a");
    put_text(at("d/b.npz"), "b");
    psti_dataset *data = open_plain(at("d"));
    CHECK(psti_dataset_count(data) == 2 && has_volumes(data, "npz") && key_is(data, 1, "b.npz"));
    CHECK(member_is(data, 1, "image", "b") && member_is(data, 1, "mask", "b"));
    CHECK(psti_dataset_sample_bytes(data, 1) == 1); /* one file, read by both */
    psti_dataset_unref(data);
    put_text(at("e/cat/a.npz"), "a");
    data = open_plain(at("e"));
    CHECK(field_number(data, "label") >= 0 && field_number(data, "volume") == 0);
    psti_dataset_unref(data);
}

static void volumes_pair_by_stem(void)
{
    scratch_clear();
    put_text(at("d/imagesTr/a_0000.nii.gz"), "a");
    put_text(at("d/imagesTr/b_0000.nii.gz"), "b");
    put_text(at("d/labelsTr/a.nii.gz"), "ma");
    put_text(at("d/labelsTr/b.nii.gz"), "mb");
    put_text(at("d/imagesTs/c_0000.nii.gz"), "of nobody");
    psti_dataset *data = open_plain(at("d"));
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_count(data) == 2 && has_volumes(data, "nifti"));
    CHECK(key_is(data, 1, "imagesTr/b_0000.nii.gz") && member_is(data, 1, "mask", "mb"));
    psti_dataset_unref(data);
    put_text(at("d/imagesTr/c_0000.nii.gz"), "c");
    CHECK_REFUSED(at("d"), PST_EDATASET, "imagesTr/c… has no mask of the same stem below labelsTr");
    put_text(at("e/images/a.npy"), "a");
    put_text(at("e/labels/a.npy"), "ma");
    data = open_plain(at("e"));
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_count(data) == 1 && has_volumes(data, "npy"));
    psti_dataset_unref(data);
    put_text(at("e/images/b.png"), "b");
    put_text(at("e/labels/b.npy"), "mb");
    CHECK_REFUSED(at("e"), PST_EDATASET, "pictures and other files");
    /* Labels that are texts are no masks. */
    put_text(at("f/images/a.jpg"), "a");
    put_text(at("f/labels/a.txt"), "0 0.5 0.5 1 1");
    data = open_plain(at("f"));
    CHECK(data && field_number(data, "mask") < 0);
    psti_dataset_unref(data);
}

int main(void)
{
    scratch_open();
    pst_log_set(count_log, NULL);
    RUN(a_folder_is_a_case);
    RUN(other_folders_are_classes);
    RUN(arrays_lie_side_by_side);
    RUN(an_archive_holds_both);
    RUN(volumes_pair_by_stem);
    remove_tree(scratch);
    return check_report();
}
