//! `LATENCY`: what took long, and how long commands take.

use std::fmt::Write as _;

use super::{Outcome, help, table};
use crate::latency::{EVENTS, Event, Series};
use crate::resp::Command;
use crate::session::Session;
use crate::totals::CommandTotals;

/// `LATENCY LATEST`
pub(crate) fn latest(session: &mut Session) -> Outcome {
    let latency = &session.node.latency;
    let all = EVENTS.map(|event| (event, latency.of(event)));
    let kept: Vec<_> =
        all.iter().filter_map(|(event, series)| Some((event, series, series.samples.back()?))).collect();
    session.reply.array(kept.len());
    for (event, series, last) in kept {
        session.reply.array(4);
        session.reply.bulk(event.name());
        session.reply.count(last.at);
        session.reply.count(last.took_ms);
        session.reply.count(series.most_ms);
    }
    Ok(())
}

/// `LATENCY HISTORY event`
pub(crate) fn history(session: &mut Session, command: Command<'_>) -> Outcome {
    let series = Event::find(command.get(2)).map(|event| session.node.latency.of(event)).unwrap_or_default();
    session.reply.array(series.samples.len());
    for sample in series.samples {
        session.reply.array(2);
        session.reply.count(sample.at);
        session.reply.count(sample.took_ms);
    }
    Ok(())
}

/// `LATENCY RESET [event...]`
pub(crate) fn reset(session: &mut Session, command: Command<'_>) -> Outcome {
    let latency = &session.node.latency;
    let forgotten = if command.len() == 2 {
        EVENTS.into_iter().filter(|event| latency.forget(*event)).count()
    } else {
        command.from(2).filter_map(Event::find).filter(|event| latency.forget(*event)).count()
    };
    session.reply.count(forgotten as u64);
    Ok(())
}

/// `LATENCY HISTOGRAM [command...]`
pub(crate) fn histogram(session: &mut Session, command: Command<'_>) -> Outcome {
    let totals = session.node.totals().by_command;
    let wanted = |of: &&CommandTotals| {
        let row = of.id.row();
        let is_asked = |name: &[u8]| {
            let container = table::find(name).filter(|id| id.row().is("container"));
            // The name of a command of commands stands for all of them.
            container.map_or(row.name.as_bytes().eq_ignore_ascii_case(name), |id| {
                row.name.split_once('|').is_some_and(|(own, _)| own == id.row().name)
            })
        };
        of.calls > 0 && (command.len() == 2 || command.from(2).any(is_asked))
    };
    let chosen: Vec<&CommandTotals> = totals.iter().filter(wanted).collect();
    let reply = &mut session.reply;
    reply.map(chosen.len());
    for of in chosen {
        reply.bulk(of.id.row().name);
        reply.map(2);
        reply.bulk("calls");
        reply.count(of.calls);
        reply.bulk("histogram_usec");
        reply.map(of.histogram_us.len());
        for (bound, calls) in &of.histogram_us {
            reply.count(*bound);
            reply.count(*calls);
        }
    }
    Ok(())
}

/// `LATENCY DOCTOR`
pub(crate) fn doctor(session: &mut Session) -> Outcome {
    let latency = &session.node.latency;
    let observed: Vec<(Event, Series)> = EVENTS
        .into_iter()
        .map(|event| (event, latency.of(event)))
        .filter(|(_, series)| !series.samples.is_empty())
        .collect();
    let text = match (observed.is_empty(), latency.threshold_ms()) {
        (true, 0) => "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it. If we weren't in a deep space mission I'd suggest to take a look at https://redis.io/topics/latency-monitor.\n".to_owned(),
        (true, _) => "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest bit. I honestly think you ought to sit down calmly, take a stress pill, and think things over.\n".to_owned(),
        (false, _) => report(&observed),
    };
    session.reply.verbatim(&text);
    Ok(())
}

fn report(observed: &[(Event, Series)]) -> String {
    let mut text = "Dave, I have observed latency spikes in this Redis instance. You don't mind talking about it, do you Dave?\n\n".to_owned();
    for (number, (event, series)) in observed.iter().enumerate() {
        let count = series.samples.len() as f64;
        let average = series.samples.iter().map(|sample| sample.took_ms as f64).sum::<f64>() / count;
        let deviation =
            series.samples.iter().map(|sample| (sample.took_ms as f64 - average).abs()).sum::<f64>() / count;
        let ends = series.samples.front().zip(series.samples.back());
        let period = ends.map_or(0.0, |(first, last)| last.at.saturating_sub(first.at) as f64 / count);
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "{}. {}: {count} latency spikes (average {average:.0}ms, mean deviation {deviation:.0}ms, period {period:.2} sec). Worst all time event {}ms.",
            number + 1,
            event.name(),
            series.most_ms
        );
    }
    text.push_str("\nI have a few advices for you:\n\n- Check your Slow Log to understand what are the commands you are running which are too slow to execute. Please check https://redis.io/commands/slowlog for more information.\n");
    text
}

/// `LATENCY HELP`
pub(crate) fn show_help(session: &mut Session) -> Outcome {
    let lines = [
        "DOCTOR",
        "    Return a human readable latency analysis report.",
        "HISTORY <event>",
        "    Return time-latency samples for the <event> class.",
        "LATEST",
        "    Return the latest latency samples for all events.",
        "RESET [<event> ...]",
        "    Reset latency data of one or more <event> classes.",
        "    (default: reset all data for all event classes)",
        "HISTOGRAM [COMMAND ...]",
        "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
        "    If no commands are specified then all histograms are replied.",
    ];
    help(session, "LATENCY", &lines)
}
