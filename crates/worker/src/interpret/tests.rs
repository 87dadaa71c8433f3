use super::*;
use crate::actions::http::Reply;

fn exit(exit: Exit) -> Answer {
    Answer { exit: Some(exit), ..Answer::default() }
}

fn said(outcome: Outcome, code: i32) -> Answer {
    Answer { outcome: Some(Ok(outcome)), ..exit(Exit::Code(code)) }
}

fn once(answer: &Answer) -> Ending {
    match interpret(answer, Tries { made: 1, retries: 0 }, &Backoff::deploy(), 0) {
        Verdict::Settle(ending) => ending,
        Verdict::Again { .. } => panic!("a bare command tries once: {answer:?}"),
    }
}

#[test]
fn an_exit_code_means_what_the_protocol_says() {
    for (answer, goal, code, message) in [
        (exit(Exit::Code(0)), Goal::Succeed, "", ""),
        (exit(Exit::Code(1)), Goal::Fail, "EXIT_1", "exit code 1"),
        (exit(Exit::Code(75)), Goal::Fail, "EXIT_75", "exit code 75"),
        (exit(Exit::Signal(9)), Goal::Fail, "SIGNAL", "killed by signal 9"),
        (exit(Exit::NotStarted("no such file".into())), Goal::Fail, "NOT_STARTED", "no such file"),
    ] {
        let ending = once(&answer);
        assert_eq!(ending.goal, goal, "{answer:?}");
        let failure = (goal == Goal::Fail).then(|| Failure::new(code, message));
        assert_eq!(ending.failure, failure, "{answer:?}");
    }
    let last_words = Answer { last_line: Some("disk full".into()), ..exit(Exit::Code(2)) };
    assert_eq!(once(&last_words).failure, Some(Failure::new("EXIT_2", "disk full")));
    assert_eq!(
        Value::Object(once(&last_words).metadata),
        json!({"error": "disk full", "exit_code": 2, "retry_count": 0})
    );
    assert_eq!(once(&exit(Exit::Signal(9))).metadata["exit_code"], 137);
}

#[test]
fn an_outcome_says_more_than_the_exit_code() {
    let word = |word: Word| Outcome { word: Some(word), ..Outcome::default() };
    for (outcome, code, goal) in [
        (Outcome::done(), 0, Goal::Succeed),
        (word(Word::Finish), 0, Goal::Succeed),
        (Outcome::skip("nothing to do"), 0, Goal::Skip),
        (Outcome::pause("two hosts are blocked"), 0, Goal::Park),
        (Outcome::pause("two hosts are blocked"), 1, Goal::Park),
        (word(Word::Pause), 0, Goal::Park),
        (Outcome::fail("E", "m"), 0, Goal::Fail),
        (Outcome::retry("later"), 0, Goal::Fail),
        (Outcome::default(), 0, Goal::Succeed),
        (Outcome::default(), 3, Goal::Fail),
    ] {
        let ending = once(&said(outcome.clone(), code));
        assert_eq!(ending.goal, goal, "{outcome:?}");
        assert!(goal != Goal::Park || ending.reason.is_some_and(|reason| !reason.is_empty()), "{outcome:?}");
    }
    let failed = once(&said(Outcome::fail("E", "m"), 0));
    assert_eq!(failed.failure, Some(Failure::new("E", "m")));
    let handler = Answer { outcome: Some(Ok(word(Word::Fail))), ..Answer::default() };
    assert_eq!(once(&handler).failure.map(|failure| failure.code.to_string()), Some("HANDLER_FAILED".into()));
    let bad = Answer { outcome: Some(Err("not JSON".into())), ..exit(Exit::Code(0)) };
    assert_eq!(once(&bad).failure, Some(Failure::new("BAD_OUTCOME", "not JSON")));
}

/// It wrote the Outcome too early, or crashed on the way out: what it says is not what became of it.
#[test]
fn an_outcome_that_all_is_well_counts_only_if_the_command_ends_well() {
    let finish = Outcome { word: Some(Word::Finish), ..Outcome::default() };
    for outcome in [Outcome::done(), Outcome::skip("nothing to do"), finish] {
        let name = outcome.word.map_or("", Word::name);
        for (end, code, words) in [
            (Exit::Code(7), "EXIT_7", "exit code 7: disk full"),
            (Exit::Code(75), "EXIT_75", "exit code 75: disk full"),
            (Exit::Signal(9), "SIGNAL", "killed by signal 9"),
        ] {
            let last_line = Some("disk full".to_owned());
            let answer = Answer { outcome: Some(Ok(outcome.clone())), last_line, ..exit(end) };
            let failure = Failure::new(code, &format!("it said {name}, but then: {words}"));
            let ending = once(&answer);
            assert_eq!((ending.goal, ending.failure), (Goal::Fail, Some(failure)), "{answer:?}");
            let again = interpret(&answer, Tries { made: 1, retries: 1 }, &Backoff::deploy(), 0);
            assert!(matches!(again, Verdict::Again { .. }), "{answer:?}");
        }
    }
    for outcome in [Outcome::fail("E", "m"), Outcome { code: Some("E".into()), ..Outcome::retry("m") }] {
        for code in [0, 1, 7, 75] {
            assert_eq!(once(&said(outcome.clone(), code)).failure, Some(Failure::new("E", "m")));
        }
    }
}

/// Commands, requests and Rust code: what each says in its own way means the same.
#[test]
fn every_kind_of_handler_is_interpreted_alike() {
    let reply = |outcome: Result<Outcome, String>| {
        Answer::from(Reply { status: Some(200), code: None, outcome, is_known: true })
    };
    let tries = Tries { made: 1, retries: 2 };
    let wait = Some(Duration::from_secs(7));
    let limited = Outcome { code: Some("RATE_LIMIT".into()), retry_after: wait, ..Outcome::retry("429") };
    for answer in [reply(Ok(limited.clone())), said(limited.clone(), 0), said(limited.clone(), 1)] {
        match interpret(&answer, tries, &Backoff::deploy(), 0) {
            Verdict::Again { wait, error, .. } => {
                assert_eq!((wait.as_secs(), &*error.code), (7, "RATE_LIMIT"), "{answer:?}");
            }
            Verdict::Settle(ending) => panic!("{ending:?}"),
        }
    }
    let gone = Outcome { permanent: true, ..Outcome::fail("NOT_FOUND", "404") };
    for (answer, failure) in [
        (reply(Ok(gone.clone())), Failure::new("NOT_FOUND", "404")),
        (said(gone, 0), Failure::new("NOT_FOUND", "404")),
        // Nobody knows what the handler meant: no other try is made, although some are left.
        (reply(Err("not JSON".into())), Failure::new("BAD_OUTCOME", "not JSON")),
        (
            Answer { outcome: Some(Err("not JSON".into())), ..exit(Exit::Code(0)) },
            Failure::new("BAD_OUTCOME", "not JSON"),
        ),
    ] {
        match interpret(&answer, tries, &Backoff::deploy(), 0) {
            Verdict::Settle(ending) => assert_eq!((ending.goal, ending.failure), (Goal::Fail, Some(failure))),
            Verdict::Again { .. } => panic!("{answer:?}"),
        }
    }
}

#[test]
fn output_and_details_come_along() {
    let details = json!({"host": "h1"}).as_object().cloned().unwrap_or_default();
    let ending = once(&said(Outcome { output: json!([1]), details, ..Outcome::done() }, 0));
    assert_eq!(Value::Object(ending.details), json!({"host": "h1", "output": [1]}));
    assert_eq!(Value::Object(ending.metadata), json!({"exit_code": 0}));
}

// proves D9
#[test]
fn failures_are_tried_again_and_then_are_final() {
    let judge = |answer: &Answer, made| interpret(answer, Tries { made, retries: 2 }, &Backoff::deploy(), 0);
    for answer in [exit(Exit::Code(1)), exit(Exit::Code(75)), exit(Exit::Signal(11))] {
        for (made, notice, seconds) in [(1, "Retry 1/2 in 5 seconds", 5), (2, "Retry 2/2 in 10 seconds", 10)]
        {
            match judge(&answer, made) {
                Verdict::Again { wait, notice: told, .. } => {
                    assert_eq!((told.as_str(), wait.as_secs()), (notice, seconds));
                }
                Verdict::Settle(ending) => panic!("{answer:?} after {made}: {ending:?}"),
            }
        }
    }
    let Verdict::Settle(last) = judge(&exit(Exit::Code(4)), 3) else { panic!("a fourth try") };
    assert_eq!(
        last.failure,
        Some(Failure::new("MAX_RETRIES", "Max retries exceeded: EXIT_4: exit code 4 (3 tries)"))
    );
    let expected = json!({
        "error": "Max retries exceeded", "exit_code": 4, "retry_count": 3, "last_error": "EXIT_4: exit code 4",
    });
    assert_eq!(Value::Object(last.metadata), expected);
}

#[test]
fn a_handler_may_set_the_wait_or_rule_out_another_try() {
    let tries = Tries { made: 1, retries: 2 };
    let wait = Some(Duration::from_millis(1_500));
    let patient = said(Outcome { retry_after: wait, ..Outcome::retry("busy") }, 0);
    match interpret(&patient, tries, &Backoff::deploy(), 0) {
        Verdict::Again { notice, error, .. } => {
            assert_eq!(notice, "Retry 1/2 in 1500 ms");
            assert_eq!(&*error.message, "busy");
        }
        Verdict::Settle(ending) => panic!("{ending:?}"),
    }
    let hopeless = said(Outcome { permanent: true, ..Outcome::fail("NO_SUCH_HOST", "gone") }, 1);
    let Verdict::Settle(ending) = interpret(&hopeless, tries, &Backoff::deploy(), 0) else { panic!("again") };
    assert_eq!(ending.failure, Some(Failure::new("NO_SUCH_HOST", "gone")));
    let never = interpret(&exit(Exit::Code(1)), tries, &Backoff::List(vec![]), 0);
    assert!(matches!(never, Verdict::Settle(_)), "an empty list of waits means no retry");
}
