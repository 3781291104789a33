import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * Stock consumers with their default settings that read a whole topic from its beginning, each in its own thread.
 *
 * They assign their partitions, as Spark does: joining a group has a benchmark of its own. The clock runs from the
 * first poll of all to the last record of all; connections and metadata are part of it, the creation of the objects
 * is not. Written without type arguments and lambdas, because the compiler that builds it at run time is a small one.
 */
public class Readers implements Runnable {
    private final KafkaConsumer consumer;
    private final long expected;
    private final long deadline;
    private long records;
    private long bytes;
    private volatile Exception failure;

    private Readers(KafkaConsumer consumer, long expected, long deadline) {
        this.consumer = consumer;
        this.expected = expected;
        this.deadline = deadline;
    }

    /** "nanoseconds records bytes", the latter two over all readers. */
    public static String run(String bootstrap, String topic, int partitions, long expected, int readers)
            throws Exception {
        List all = new ArrayList();
        List threads = new ArrayList();
        long deadline = System.nanoTime() + 120000000000L;
        for (int i = 0; i < readers; i++) {
            Readers reader = new Readers(create(bootstrap, topic, partitions), expected, deadline);
            all.add(reader);
            threads.add(new Thread(reader));
        }
        long begin = System.nanoTime();
        for (int i = 0; i < readers; i++) {
            ((Thread) threads.get(i)).start();
        }
        for (int i = 0; i < readers; i++) {
            ((Thread) threads.get(i)).join();
        }
        long elapsed = System.nanoTime() - begin;
        long records = 0;
        long bytes = 0;
        for (int i = 0; i < readers; i++) {
            Readers reader = (Readers) all.get(i);
            reader.consumer.close();
            if (reader.failure != null) {
                throw reader.failure;
            }
            records += reader.records;
            bytes += reader.bytes;
        }
        return elapsed + " " + records + " " + bytes;
    }

    private static KafkaConsumer create(String bootstrap, String topic, int partitions) {
        Map settings = new HashMap();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        KafkaConsumer consumer = new KafkaConsumer(settings);
        List assigned = new ArrayList();
        for (int i = 0; i < partitions; i++) {
            assigned.add(new TopicPartition(topic, i));
        }
        consumer.assign(assigned);
        return consumer;
    }

    public void run() {
        try {
            while (records < expected) {
                Iterator polled = consumer.poll(Duration.ofMillis(1000)).iterator();
                while (polled.hasNext()) {
                    ConsumerRecord record = (ConsumerRecord) polled.next();
                    records++;
                    bytes += record.serializedValueSize();
                }
                if (System.nanoTime() - deadline > 0) {
                    throw new IllegalStateException("read " + records + " of " + expected);
                }
            }
        } catch (Exception problem) {
            failure = problem;
        }
    }
}
