//! When a document takes another's place, in a folder and over S3.

use std::fs;

use waypost_worker::projection::objects::{Content, Put, open, put};

use super::places::{Place, Where};

fn content(text: &str, version: u64, is_last: bool) -> Content {
    Content { bytes: text.as_bytes().to_vec(), version, is_last }
}

async fn only_newer_ones(at: Where) {
    let place = Place::at(at).await;
    let objects = &*place.objects;
    let key = "runs/run_1/status.json";
    assert_eq!(objects.read(key).await.unwrap(), None);
    for (text, version, is_last, then, stands) in [
        ("b", 5, false, Put::Written, "b"),
        ("a", 4, false, Put::Kept, "b"),
        ("c", 5, false, Put::Kept, "b"),
        ("b", 6, false, Put::Kept, "b"),
        ("d", 7, false, Put::Written, "d"),
        ("e", 9, true, Put::Written, "e"),
        ("f", 10, false, Put::Kept, "e"),
        ("g", 11, true, Put::Kept, "e"),
    ] {
        assert_eq!(put(objects, key, &content(text, version, is_last)).await.unwrap(), then, "{text}");
        let stored = objects.read(key).await.unwrap().unwrap();
        assert_eq!(stored.bytes, stands.as_bytes());
    }
    // Who saw what is no longer there does not write, nor does who saw nothing.
    let key = "runs/run_1/steps/1.json";
    assert!(objects.write(key, &content("a", 1, false), None).await.unwrap());
    assert!(!objects.write(key, &content("b", 2, false), None).await.unwrap());
    let was = objects.read(key).await.unwrap().unwrap();
    assert!(objects.write(key, &content("c", 3, false), Some(&was)).await.unwrap());
    assert!(!objects.write(key, &content("d", 4, false), Some(&was)).await.unwrap());
    assert_eq!(objects.read(key).await.unwrap().unwrap().version, 3);
}

// proves A4
#[tokio::test]
async fn a_folder_takes_newer_documents_alone() {
    only_newer_ones(Where::Folder).await;
}

// proves A4
#[tokio::test]
async fn a_bucket_takes_newer_documents_alone() {
    only_newer_ones(Where::S3).await;
}

// proves A4
#[tokio::test]
async fn a_version_whose_document_was_never_written_counts_for_nothing() {
    let place = Place::at(Where::Folder).await;
    let (objects, root) = (&*place.objects, place.folder.path().join("objects"));
    let (key, document) = ("runs/run_1/status.json", root.join("runs/run_1/status.json"));
    put(objects, key, &content("one", 1, false)).await.unwrap();
    put(objects, key, &content("two", 2, true)).await.unwrap();
    // As if the process had ended between the two files of the second write.
    fs::write(&document, "one").unwrap();
    let stored = objects.read(key).await.unwrap().unwrap();
    assert_eq!((stored.version, stored.is_last), (1, false));
    assert_eq!(put(objects, key, &content("one", 1, false)).await.unwrap(), Put::Kept);
    assert_eq!(put(objects, key, &content("two", 2, true)).await.unwrap(), Put::Written);
    assert_eq!(fs::read_to_string(&document).unwrap(), "two");
    // The same with the first write of all.
    fs::remove_file(&document).unwrap();
    assert_eq!(put(objects, key, &content("two", 2, true)).await.unwrap(), Put::Written);
    // One that lost its version is replaced by whatever is newer than nothing.
    fs::remove_file(root.join(".versions").join(key)).unwrap();
    assert_eq!(put(objects, key, &content("two, again", 2, true)).await.unwrap(), Put::Written);
    let left: Vec<_> =
        fs::read_dir(root.join("runs/run_1")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["status.json"], "nothing else is in the readers' way");
}

#[tokio::test]
async fn what_is_no_object_store_is_told() {
    for url in ["", "file://", "file://relative", "s3://", "https://user:secret@host/x", "/tmp"] {
        let error = open(&url.into()).unwrap_err();
        assert!(error.contains("file:///path/to/folder") && !error.contains("secret"), "{url}: {error}");
    }
    assert_eq!(open(&"file:///tmp/objects".into()).unwrap().name(), "file:///tmp/objects");
    assert_eq!(open(&"s3://bucket/a/b".into()).unwrap().name(), "s3://bucket/a/b");
}
